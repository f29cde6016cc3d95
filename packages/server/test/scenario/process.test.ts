import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { hostProcesses, logOf, workshop, type Workshop } from '../support/scenario.ts';
import { scriptedAgent } from '../support/scripted-agent.ts';
import { compileCache, startService, type Service } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

const mainFile = fileURLToPath(new URL('../../src/main.mjs', import.meta.url));

const idleMs = 2_000;
let service: Service;
let shop: Workshop;
before(async () => {
  service = await startService({
    env: {
      BERTH_SANDBOX_IDLE_SECONDS: `${idleMs / 1_000}`,
      BERTH_DRAIN_SECONDS: '20',
      NODE_OPTIONS: `--import=${new URL('../support/faults-on-signal.ts', import.meta.url).href}`,
    },
  });
  shop = await workshop(service);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

/** A file that a turn waits for. */
const inWorkspace = (agent: { id: string }, name: string) =>
  join(service.dataDir, 'volumes', agent.id, 'workspace', name);

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

function start(env: Record<string, string>, ...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    const options = { env: { PATH: process.env['PATH'] ?? '', ...env }, timeout: 30_000 };
    execFile(process.execPath, [mainFile, ...args], options, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}

test('Two conversations of one agent work at the same time in one sandbox.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  // Each waits for what only the other can make, and says which processes it sees.
  const meet = (own: string, other: string) =>
    `run: touch ${own}; for i in $(seq 300); do [ -e ${other} ] && break; sleep 0.1; done; ls ${other}`;
  const [a, b] = await Promise.all([agent.say(meet('left', 'right')), agent.say(meet('right', 'left'))]);
  assert.match(a.message.content, /\nright\n\[exit code: 0\]/);
  assert.match(b.message.content, /\nleft\n\[exit code: 0\]/);
  assert.notEqual(a.conversationId, b.conversationId);
});

test('An idle sandbox is stopped, and the next turn starts one that has the same files and knows the conversation.', async () => {
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  // All test files see the processes of one host, so that this number is in no other.
  const first = await agent.ask(
    'run: echo kept > kept.txt; (sleep 7396 >/dev/null 2>&1 &); until [ -e seen ]; do sleep 0.1; done',
  );
  const left = () => hostProcesses((line) => line.startsWith('sleep 7396 ')).length;
  // Looked for while the turn goes on: after it the sandbox may be gone before it was seen.
  await until('what the turn leaves running runs', () => left() === 1);
  const seenMs = Date.now();
  writeFileSync(inWorkspace(agent, 'seen'), '');
  await until('the idle sandbox is gone with all that ran in it', () => left() === 0);
  assert.ok(Date.now() - seenMs >= idleMs, 'what a turn leaves running runs while the sandbox does');
  const next = await agent.say('run: cat kept.txt', first.conversationId);
  assert.match(next.message.content, /kept\n\[exit code: 0\]/);
  const known = await agent.say('hm?', first.conversationId);
  assert.ok(Number(/messages in this conversation: (\d+)/.exec(known.message.content)?.[1]) >= 5);
});

test('A second service on the same data directory is refused in one line, and the first goes on.', async () => {
  const ended = await start({ BERTH_DATA_DIR: service.dataDir, BERTH_PORT: '0' });
  assert.equal(ended.code, 1);
  assert.equal(ended.stdout, '');
  assert.match(ended.stderr, /^berth: [^\n]*\n$/);
  assert.ok(ended.stderr.includes(service.dataDir), ended.stderr);
  assert.equal((await service.api('GET', '/v1/limits')).status, 200);
});

test('A port that another program has is refused in one line that names BERTH_PORT.', async () => {
  const dataDir = join(shop.home, 'other-data');
  const ended = await start({ BERTH_DATA_DIR: dataDir, BERTH_PORT: String(service.port) });
  assert.equal(ended.code, 1, ended.stderr);
  assert.match(ended.stderr, /^berth: BERTH_PORT [^\n]*\n$/);
});

test('An address that is not of this machine is refused in one line that names BERTH_HOST.', async () => {
  const dataDir = join(shop.home, 'other-data');
  // Of the second one the first label is too long, so that no resolver is asked, which may take its time to say no.
  for (const host of ['192.0.2.1', `${'a'.repeat(64)}.invalid`]) {
    const ended = await start({ BERTH_DATA_DIR: dataDir, BERTH_PORT: '0', BERTH_HOST: host });
    assert.equal(ended.code, 1, ended.stderr);
    assert.match(ended.stderr, /^berth: BERTH_HOST [^\n]*\n$/);
  }
});

test('SIGTERM lets a running turn end and delivers its answer, as JSON and as a stream, before the service exits with 0.', async () => {
  const agent = await shop.agent(scriptedAgent);
  const waiting = agent.say('hold go-on');
  const body = { agentId: agent.id, conversationId: null, content: 'hold go-on' };
  const stream = await openSse(`${service.url}/api/v1/chat/send`, { key: service.key, method: 'POST', body });
  await until('words stream', () => stream.text.includes('message.delta'));
  // They come by two connections, and what has not begun when the signal comes does not begin any more.
  await until('both turns have begun', async () => {
    const { runs } = (await service.api('GET', `/v1/agents/${agent.id}/runs`)).body;
    return runs.filter(({ status }: { status: string }) => status === 'running').length === 2;
  });
  const printed = service.logs().length;
  const stopping = service.stop();
  await until('it has begun to stop', () => service.logs().slice(printed).includes('Stopping.'));
  writeFileSync(inWorkspace(agent, 'go-on'), '');
  const code = await stopping;
  const answer = await waiting;
  assert.equal(answer.status, 'completed');
  assert.match(answer.message.content, /^1 2 3 4 5 6 $/);
  assert.equal(stream.frames.at(-1)?.event, 'run.completed');
  assert.equal(code, 0);
  const left = () => hostProcesses((line) => line.includes(service.dataDir));
  assert.deepEqual(left(), [], 'no process is left');
  await service.restart();
});

test('A turn that outlasts the drain goes on with the next start.', async () => {
  await service.restart({ BERTH_DRAIN_SECONDS: '1' });
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const asked = await agent.ask('slow: 30 100');
  await until('words stream', async () =>
    (await logOf(service, asked)).some((event) => event.type === 'message.delta'),
  );
  await service.restart();
  await until(
    'the turn has ended',
    async () => (await service.api('GET', `/v1/runs/${asked.runId}`)).body.run.status === 'completed',
  );
});

test('A failure that nobody handles is logged with its stack and counted, and the service goes on.', async () => {
  const { pid } = service;
  process.kill(pid, 'SIGUSR2');
  const counted = async () => (await service.api('GET', '/metrics')).text;
  await until('it is counted', async () => /^berth_unhandled_rejections_total 1$/m.test(await counted()));
  await until('it is logged', () =>
    /handled by nobody.*A failure of nobody\..*faults-on-signal\.ts/.test(service.logs()),
  );
  assert.equal((await service.api('GET', '/v1/limits')).status, 200);
  assert.equal(service.pid, pid);
});

test('An exception that nobody caught ends the service in order and with a failure, and its turns go on.', async () => {
  await service.restart({ BERTH_DETACH: 'always' });
  const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
  const asked = await agent.ask('slow: 40 100');
  const told = async () => (await logOf(service, asked)).map(({ type }) => type);
  await until('words stream', async () => (await told()).includes('message.delta'));
  process.kill(service.pid, 'SIGHUP');
  await until('it is logged', () => /caught by nobody.*An exception of nobody/.test(service.logs()));
  assert.equal(await service.stop(), 1);
  await service.restart({ BERTH_DETACH: 'never' });
  await until('the turn has ended', async () => (await told()).includes('run.completed'));
  assert.ok(!(await told()).includes('run.retrying'), 'it was taken up, not begun again');
});

test('A second start makes nothing new and prints no key.', async () => {
  const files = ['bootstrap-key', 'encryption-key'].map((name) => join(service.dataDir, name));
  const look = async () => ({
    agents: (await service.api('GET', '/v1/agents?limit=100')).body,
    keys: (await service.api('GET', '/v1/api-keys?limit=100')).body.keys.map((key: { id: string }) => key.id),
    files: files.map((file) => [readFileSync(file, 'utf8'), statSync(file).mode & 0o777]),
  });
  const before = await look();
  const printed = service.logs().length;
  await service.restart();
  const after = await look();
  // Cursors are signed texts with a time of their own; what they lead to is the same.
  delete before.agents.nextCursor;
  delete after.agents.nextCursor;
  assert.deepEqual(after, before);
  assert.equal(
    after.files.every(([, mode]) => mode === 0o600),
    true,
  );
  assert.doesNotMatch(service.logs().slice(printed), /svc_live_\w{15}/);
});

test('A start without the file of its key says by which command another is made, in any folder and beside the service.', async () => {
  rmSync(join(service.dataDir, 'bootstrap-key'));
  await service.restart();
  const told = /bootstrap-key is missing; make another with: (.+)\n/.exec(service.logs());
  const { stdout } = await promisify(execFile)('sh', ['-c', told?.[1] ?? 'false'], {
    cwd: shop.home,
    env: { PATH: process.env['PATH'], ...compileCache() },
  });
  assert.equal((await service.as(stdout.trim())('GET', '/v1/limits')).status, 200);
});

test('A bad value of a variable is refused with its name, before anything is made.', async () => {
  const dataDir = join(shop.home, 'never');
  const ended = await start({ BERTH_DATA_DIR: dataDir, BERTH_PORT: 'eighty' });
  assert.equal(ended.code, 1);
  assert.match(ended.stderr, /^berth: BERTH_PORT must be [^\n]*"eighty"[^\n]*\n$/);
  assert.throws(() => statSync(dataDir), /ENOENT/);
});

test('The doctor tells what the machine offers, for people and for programs.', async () => {
  assert.match(await service.host('doctor'), /^ok +node: v\d+/m);
  const told = JSON.parse(await service.host('doctor', '--json'));
  assert.equal(told.ok, true);
  const parts = told.findings.map((finding: { part: string }) => finding.part);
  for (const part of ['node', 'git', 'database', 'disk', 'models', 'sandbox', 'port'])
    assert.ok(parts.includes(part), part);
});
