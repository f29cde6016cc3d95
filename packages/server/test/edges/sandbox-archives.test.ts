import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { filesWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
let origin: string;
let workspace: string;
before(async () => {
  ({ world, origin, workspace } = await filesWorld());
});
after(() => world.close());

/** Over the wire, where an answer can be cut off. */
const archiveOf = (path: string) =>
  fetch(`${origin}/sandbox/${world.agent.id}/files${path}?archive=tar`, {
    headers: { authorization: `Bearer ${world.keys.owner}` },
  });

/** Does something at the moment between the look at what is to be an archive and its reading. */
async function betweenLookAndRead<T>(act: () => void, work: () => Promise<T>): Promise<T> {
  const { sandboxFiles } = world.services;
  const { archive } = sandboxFiles;
  sandboxFiles.archive = async (...asked) => {
    const stream = await archive(...asked);
    act();
    return stream;
  };
  try {
    return await work();
  } finally {
    sandboxFiles.archive = archive;
  }
}

test('what a program puts in the place of a folder while an archive begins is told with a status, and nothing is held', async () => {
  const folder = join(workspace, 'swapped');
  mkdirSync(folder);
  writeFileSync(join(folder, 'in'), 'in');
  const read = () => archiveOf('/swapped');
  const put = (link: string | null) => () => {
    renameSync(folder, `${folder}-away`);
    if (link !== null) symlinkSync(link, folder);
  };
  const back = () => {
    rmSync(folder, { force: true });
    renameSync(`${folder}-away`, folder);
  };
  // More often than archives may be read at once: each gives its place back.
  for (let round = 0; round <= limits.archives.ofAgent; round += 1) {
    const refused = await betweenLookAndRead(put('/'), read);
    const told = (await refused.json()) as { code: string; error: string };
    assert.deepEqual([refused.status, told.code], [409, 'conflict']);
    assert.equal(refused.headers.get('content-type'), 'application/json');
    assert.equal(refused.headers.get('content-disposition'), null);
    back();
  }
  const gone = await betweenLookAndRead(put(null), read);
  assert.deepEqual([gone.status, ((await gone.json()) as { code: string }).code], [404, 'not_found']);
  back();
  const whole = await read();
  assert.equal(whole.status, 200);
  const tar = Buffer.from(await whole.arrayBuffer());
  assert.equal(execFileSync('tar', ['-tf', '-'], { input: tar, encoding: 'utf8' }), 'in\n');
});

test('a program that swaps a folder and a link all the time gets no archive to end without a status', async () => {
  mkdirSync(join(workspace, 'racing'));
  writeFileSync(join(workspace, 'racing', 'in'), 'in');
  symlinkSync('/', join(workspace, 'racing-link'));
  // renameat2(2) with RENAME_EXCHANGE, until its input ends.
  const number = process.arch === 'arm64' ? 276 : 316;
  const script = `$SIG{ALRM} = sub { exit }; alarm 60; my ($a, $b) = ('racing', 'racing-link');
    $| = 1; print 'on'; while (getppid == $ARGV[0]) { syscall(${number}, -100, $a, -100, $b, 2) == 0 or die $! }`;
  const swapper = spawn('/usr/bin/perl', ['-e', script, String(process.pid)], {
    cwd: workspace,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(swapper, 'exit');
  try {
    await once(swapper.stdout, 'data');
    const seen = new Set<number>();
    for (let tries = 0; tries < 300; tries += 1) {
      // One without a status rejects.
      const reply = await archiveOf('/racing');
      seen.add(reply.status);
      await reply.arrayBuffer();
    }
    assert.deepEqual(
      [...seen].filter((status) => ![200, 404, 409].includes(status)),
      [],
    );
    assert.equal(swapper.exitCode, null);
  } finally {
    swapper.kill('SIGKILL');
    await ended;
  }
});

test('a body that fails in its middle is cut off, and the log says so', async () => {
  const { sandboxFiles } = world.services;
  const { archive } = sandboxFiles;
  const failing = async function* () {
    yield Buffer.alloc(1024);
    throw new Error('the middle is broken');
  };
  sandboxFiles.archive = async () => Readable.from(failing(), { objectMode: false, highWaterMark: 1024 });
  try {
    const reply = await archiveOf('/');
    assert.equal(reply.status, 200);
    await assert.rejects(reply.arrayBuffer());
    const told = () => world.logLines.find(({ message }) => message.startsWith('A body was cut off'));
    await until('it is in the log', () => Promise.resolve(told() !== undefined));
    assert.equal(told()!.level, 'info');
    assert.match(String(told()!.fields?.['error']), /the middle is broken/);
    assert.equal(told()!.fields?.['requestId'], reply.headers.get('x-request-id'));
  } finally {
    sandboxFiles.archive = archive;
  }
});
