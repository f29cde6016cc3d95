import assert from 'node:assert/strict';
import { readdirSync, statSync } from 'node:fs';
import { request, type ClientRequest } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { tarEnd, tarHeader } from '../../src/domain/tar.ts';
import { noDisks } from '../support/disk-trial.ts';
import { freezeDisk } from '../support/frozen-disk.ts';
import { workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { inTime, until } from '../support/until.ts';

const problem = await noDisks();

interface Answer {
  status: number;
  text: string;
}

interface Half {
  upload: ClientRequest;
  status: Promise<number | null>;
}

/** What others ask for takes milliseconds; whoever waits for the disk waits until it is thawed. */
const OTHERS_MS = 15_000;

function archiveOf(files: Record<string, string>): Buffer {
  const facts = { kind: 'file', target: Buffer.alloc(0), mode: 0o644, mtimeSeconds: 1_700_000_000 } as const;
  const parts = Object.entries(files).flatMap(([name, text]) => [
    tarHeader({ ...facts, path: Buffer.from(name), sizeBytes: text.length }),
    Buffer.from(text.padEnd(512, '\0')),
  ]);
  return Buffer.concat([...parts, tarEnd]);
}

describe('while the disk of an agent answers nobody', { skip: problem ?? false }, () => {
  let service: Service;
  let shop: Workshop;
  let slow: Pushed;
  let other: Pushed;
  let snapshot: string;
  let half: Half;
  before(async () => {
    service = await startService({ env: { BERTH_DISK_MODE: 'image', BERTH_SANDBOX_DISK_MB: '32' } });
    shop = await workshop(service);
    [slow, other] = [await shop.agent({ 'AGENTS.md': 'x\n' }), await shop.agent({ 'AGENTS.md': 'y\n' })];
    assert.equal((await file(slow, 'PUT', 'first', 'x')).status, 201);
  });
  after(async () => {
    await shop?.close();
    await service?.end();
  });

  const volume = (agent: Pushed) => join(service.dataDir, 'volumes', agent.id);
  async function file(agent: Pushed, method: string, path: string, body?: string | Buffer, type = 'text/x') {
    const reply = await fetch(`${service.url}/sandbox/${agent.id}/files/${path}`, {
      method,
      headers: { authorization: `Bearer ${service.key}`, 'content-type': type },
      ...(body === undefined ? {} : { body: body as NonNullable<RequestInit['body']> }),
    });
    return { status: reply.status, text: await reply.text() };
  }
  const put = async (path: string, text: string) =>
    assert.ok([200, 201].includes((await file(slow, 'PUT', path, text)).status));
  const read = async (path: string) => (await file(slow, 'GET', path)).text;
  const staged = () => readdirSync(join(volume(slow), 'staging'));

  /** The service answers, and does to another agent's files what it is asked for. */
  async function othersGoOn(): Promise<void> {
    const asked = (async () => {
      assert.equal((await service.api('GET', '/healthz')).status, 200);
      assert.ok([200, 201].includes((await file(other, 'PUT', 'mine', 'mine')).status));
      assert.equal((await file(other, 'GET', 'mine')).text, 'mine');
      assert.equal((await file(other, 'DELETE', 'mine')).status, 204);
    })();
    await inTime('others are served', asked, OTHERS_MS);
  }

  /** An upload of which a half has arrived at the disk. */
  async function halfOf(path: string): Promise<Half> {
    const before = staged();
    const upload = request(`${service.url}/sandbox/${slow.id}/files/${path}`, {
      method: 'PUT',
      agent: false,
      headers: { authorization: `Bearer ${service.key}`, 'transfer-encoding': 'chunked' },
    });
    const status = new Promise<number | null>((resolve) => {
      upload.on('response', (reply) => resolve(reply.resume().statusCode ?? null));
      upload.on('error', () => resolve(null));
    });
    upload.write('half');
    await until('a half is there', () =>
      staged().some(
        (name) =>
          !before.includes(name) &&
          statSync(join(volume(slow), 'staging', name, 'it'), { throwIfNoEntry: false })?.size === 4,
      ),
    );
    return { upload, status };
  }

  async function endOf({ upload, status }: Half, rest: string): Promise<Answer> {
    upload.end(rest);
    return { status: (await status) ?? 0, text: 'an upload' };
  }

  /** The call that each waits in stands behind its name; those that make something beside the volume wait in the same one. */
  const deeds: { name: string; given?: () => Promise<void>; ask: () => Promise<Answer> }[] = [
    {
      name: 'a file is deleted (unlink)',
      given: () => put('gone', 'x'),
      ask: () => file(slow, 'DELETE', 'gone'),
    },
    {
      name: 'an empty folder is deleted (rmdir)',
      given: async () => void (await file(slow, 'PUT', 'empty/')),
      ask: () => file(slow, 'DELETE', 'empty'),
    },
    {
      name: 'a file is replaced (mkdir)',
      given: () => put('replaced', 'old'),
      ask: () => file(slow, 'PUT', 'replaced', 'new'),
    },
    { name: 'a folder is made (mkdir)', ask: () => file(slow, 'PUT', 'made/deep/') },
    {
      name: 'a folder is deleted with what is in it (mkdir)',
      given: () => put('full/of/files', 'x'),
      ask: () => file(slow, 'DELETE', 'full?recursive=true'),
    },
    {
      name: 'an archive is unpacked (mkdir)',
      given: () => put('unpacked/b', 'old'),
      ask: () => file(slow, 'PUT', 'unpacked', archiveOf({ a: 'A', b: 'B' }), 'application/x-tar'),
    },
    {
      name: 'more of an upload arrives (write)',
      given: async () => void (half = await halfOf('whole')),
      ask: () => endOf(half, 'done'),
    },
    {
      name: 'an upload ends (fchown)',
      given: async () => void (half = await halfOf('whole')),
      ask: () => endOf(half, ''),
    },
    {
      name: 'a snapshot is restored (mkdir)',
      given: async () => {
        const { body, text } = await service.api('POST', `/sandbox/${slow.id}/snapshots`, {});
        assert.ok(body.snapshot, text);
        snapshot = body.snapshot.id;
      },
      ask: () => service.api('POST', `/sandbox/${slow.id}/snapshots/${snapshot}/restore`, {}),
    },
  ];

  for (const { name, given, ask } of deeds)
    test(`others are served, and it is done when the disk answers again: ${name}`, async () => {
      await given?.();
      const thaw = await freezeDisk(volume(slow));
      let isAnswered = false;
      try {
        const asked = ask().finally(() => (isAnswered = true));
        await othersGoOn();
        assert.ok(!isAnswered, 'it waits for the disk');
        await thaw();
        const reply = await asked;
        assert.ok([200, 201, 204].includes(reply.status), reply.text);
        assert.deepEqual(staged(), []);
      } finally {
        await thaw();
      }
    });

  test('more calls than the service has threads wait, turns of others go on, and all is done in the end', async () => {
    for (const name of ['a', 'b', 'c']) await put(`gone/${name}`, 'x');
    await put('kept', 'old');
    const arriving = await halfOf('arrived');
    const left = await halfOf('kept');
    const thaw = await freezeDisk(volume(slow));
    let answered = 0;
    try {
      const turn = await slow.ask('run: echo done > of-a-turn');
      arriving.upload.end('done');
      left.upload.write('mor');
      const asked = [
        ...['a', 'b', 'c'].map((name) => file(slow, 'DELETE', `gone/${name}`)),
        ...['d', 'e', 'f'].map((name) => file(slow, 'PUT', `new/${name}`, name)),
        ...['g', 'h'].map((name) =>
          file(slow, 'PUT', 'new', archiveOf({ [name]: name, both: name }), 'application/x-tar'),
        ),
      ].map((work) => work.finally(() => (answered += 1)));
      for (let times = 0; times < 3; times += 1) await othersGoOn();
      const { status } = await inTime('a turn of another', other.say('run: echo hello'), OTHERS_MS * 2);
      assert.equal(status, 'completed');
      left.upload.destroy();
      await othersGoOn();
      assert.equal(answered, 0, 'they wait for the disk');
      await thaw();
      const statuses = (await Promise.all(asked)).map((reply) => reply.status);
      assert.deepEqual(statuses.slice(0, 6), [204, 204, 204, 201, 201, 201]);
      assert.ok(statuses.slice(6).every((code) => code < 300));
      assert.equal(await arriving.status, 201);
      await until(
        'its turn is done',
        async () => (await service.api('GET', `/v1/runs/${turn.runId}`)).body.run.status === 'completed',
      );
    } finally {
      await thaw();
    }
    await until('nothing is left of what was done', () => staged().length === 0);
    assert.equal(await left.status, null);
    assert.equal(await read('kept'), 'old', 'whose client went away');
    assert.equal(await read('arrived'), 'halfdone');
    assert.equal(await read('of-a-turn'), 'done\n');
    for (const name of ['d', 'e', 'f', 'g', 'h']) assert.equal(await read(`new/${name}`), name);
    assert.match(await read('new/both'), /^[gh]$/);
    assert.deepEqual(readdirSync(join(volume(slow), 'workspace/gone')), []);
  });
});
