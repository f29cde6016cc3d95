import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { fillDisk } from '../support/full-disk.ts';
import { checkLog, logOf, workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const isRoot = process.getuid?.() === 0;
const skip = !isRoot && 'only root can give the service a disk of its own that a test may fill';
/** A database that ends because its log has no room is away. */
const why = /The disk of the service is full|cannot reach its database/;
const mainFile = fileURLToPath(new URL('../../src/main.mjs', import.meta.url));

test(
  'While the disk of the service is full nothing more is accepted, and what was accepted goes on when there is room.',
  { skip },
  async (t) => {
    const service = await startService({
      diskMiB: 400,
      env: { BERTH_DETACH: 'always', BERTH_LEASE_SECONDS: '2' },
    });
    t.after(() => service.end());
    const shop = await workshop(service);
    t.after(() => shop.close());
    const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
    const first = await agent.say('run: echo kept > kept.txt');
    const ballast = join(service.dataDir, 'ballast');
    const { conversationId } = first;

    const long = await agent.ask('slow: 30 100', conversationId);
    const behind = await agent.ask('run: cat kept.txt', conversationId);
    await fillDisk(ballast);

    const refused: number[] = [];
    await until('the database has no room left for messages', async () => {
      const content = `say: ${Array.from({ length: 20_000 }, () => Math.random().toString(36).slice(2))
        .join('')
        .slice(0, 150_000)}`;
      const body = { agentId: agent.id, conversationId: null, content };
      const reply = await service.api('POST', '/api/v1/chat/send', body, { prefer: 'respond-async' });
      if (reply.status === 202) return false;
      refused.push(reply.status);
      assert.deepEqual([reply.status, reply.body.code], [503, 'unavailable'], reply.text);
      assert.match(reply.body.error, why);
      assert.ok(reply.headers.has('retry-after'));
      return true;
    });
    assert.equal(refused.length, 1);
    const ready = await service.api('GET', '/readyz');
    assert.equal(ready.status, 503);
    assert.match(ready.body.error, why);
    const made = await service.api('POST', '/v1/agents', { name: 'Another' });
    assert.equal(made.status, 503, made.text);
    assert.match(made.body.error, why);

    await service.kill9();
    rmSync(ballast);
    await service.restart();
    for (const { runId } of [long, behind]) {
      await until(
        'what was accepted has its answer',
        async () => (await service.api('GET', `/v1/runs/${runId}`)).body.run.status === 'completed',
        60_000,
      );
    }
    const log = await logOf(service, { conversationId });
    checkLog(log);
    const answer = log.findLast((event) => event.type === 'message.created')!;
    assert.match(answer.data.content, /^kept$/m, 'the workspace is there');
    assert.equal((await agent.say('say: there is room')).status, 'completed');
    assert.equal((await service.api('GET', '/readyz')).status, 200);
  },
);

test(
  'A service that cannot start because its disk is full says so in its last line.',
  { skip },
  async (t) => {
    const parentDir = mkdtempSync('/tmp/berth-t-');
    const dataDir = join(parentDir, 'data');
    mkdirSync(dataDir);
    chmodSync(parentDir, 0o711);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=0711', 'none', dataDir]);
    t.after(() => {
      execFileSync('umount', ['--lazy', dataDir]);
      rmSync(parentDir, { recursive: true });
    });
    const { code, text } = await new Promise<{ code: unknown; text: string }>((resolve) => {
      const env = { PATH: process.env['PATH'] ?? '', BERTH_DATA_DIR: dataDir, BERTH_PORT: '0' };
      execFile(process.execPath, [mainFile], { env, timeout: 120_000 }, (error, _out, errors) =>
        resolve({ code: error?.code, text: errors }),
      );
    });
    assert.equal(code, 1, text);
    assert.match(text, /^berth: BERTH_DATA_DIR: the disk of \S+ is full; make room there\./m);
  },
);
