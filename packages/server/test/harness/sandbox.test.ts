import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import type { HarnessConnection, HarnessLink } from '../../src/domain/ports/harness.ts';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { newId } from '../../src/domain/ids.ts';
import { harnessLinks } from '../../src/harness/link.ts';
import { harnessLaunch } from '../../src/harness/launch.ts';
import { fixture, MIB } from '../sandbox/fixture.ts';
import type { Fixture } from '../sandbox/fixture.ts';
import { operatorKey, sandboxToken, startGateway } from '../support/gateway.ts';
import type { TestGateway } from '../support/gateway.ts';
import { runTurn } from '../support/harness-fixture.ts';
import { preparedHarness } from '../support/local-harness.ts';
import { silentLog } from '../support/log.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import type { Script } from '../support/scripted-model.ts';
import { until } from '../support/until.ts';

interface World {
  sandboxes: Fixture;
  gateway: TestGateway;
  /** Makes a commit of the files and starts a sandbox on it, over the same volume each time. */
  start: (
    files: Record<string, string>,
    command?: string[] | null,
  ) => Promise<{ sandbox: RunningSandbox; connection: HarnessConnection; link: HarnessLink }>;
}

async function world(t: TestContext, script: Script): Promise<World | null> {
  const sandboxes = fixture();
  t.after(() => sandboxes.close());
  const { usable, problems } = await sandboxes.driver.capabilities();
  if (!usable) {
    t.skip(`no sandbox here: ${problems.join(' ')}`);
    return null;
  }
  const model = await startScriptedModel(script);
  t.after(model.close);
  const gateway = await startGateway({
    env: { ANTHROPIC_API_KEY: operatorKey },
    file: { anthropic: { wire: 'anthropic', baseUrl: model.url } },
    model: 'anthropic/model-1',
  });
  t.after(() => gateway.close());
  const repo = mkdtempSync(join(tmpdir(), 'berth-repo-'));
  t.after(() => rmSync(repo, { recursive: true, force: true }));
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', repo, '-c', 'user.name=a', '-c', 'user.email=a@b.invalid', ...args], {
      encoding: 'utf8',
    });
  git('init', '-q');
  const prepared = await preparedHarness();
  return {
    sandboxes,
    gateway,
    start: async (files, command = null) => {
      for (const [name, text] of Object.entries(files)) writeFileSync(join(repo, name), text);
      git('add', '-A');
      git('commit', '-q', '-m', 'x');
      const id = newId();
      const runDir = join(sandboxes.folder, `run-${id}`);
      mkdirSync(runDir, { mode: 0o700 });
      git('archive', '--format=tar', '-o', join(runDir, 'release.tar'), 'HEAD');
      const server = createServer((request, response) =>
        gateway.gateway.handle(gateway.caller, request, response),
      );
      await new Promise<void>((resolve) => server.listen(join(runDir, 'gateway.sock'), resolve));
      t.after(() => {
        server.close();
        server.closeAllConnections();
      });
      const launch = harnessLaunch(prepared, {
        agentId: 'agent',
        commit: git('rev-parse', 'HEAD').trim(),
        model: 'anthropic/model-1',
        wire: 'anthropic',
        token: sandboxToken,
        command,
        instructions: null,
        secrets: { MY_SECRET: 'of the agent', ANTHROPIC_API_KEY: 'key of the agent', PATH: '/nowhere' },
        withheldSecrets: ['ANTHROPIC_API_KEY'],
        modelConnections: 10,
        memoryBytes: 256 * MIB,
      });
      const open = harnessLinks({ log: silentLog });
      const link = await open({ socketPath: join(runDir, 'control.sock'), sandboxId: id });
      t.after(() => link.leave());
      const sandbox = await sandboxes.driver.start(
        sandboxes.spec(launch.command, { id, runDir, env: launch.env, binds: launch.binds }),
      );
      const connection = await link.connect(sandbox, { initializeTimeoutMs: 30_000 });
      return { sandbox, connection, link };
    },
  };
}

test('in a real sandbox an agent works in its repository, and its changes outlive a restart and a deployment', async (t) => {
  const commands = [
    'sh work.sh && echo changed >> notes.txt && id -u',
    'cat notes.txt work.sh',
    'cat /proc/*/environ; ls -la /run/berth /opt/berth /home/agent',
  ];
  let next = 0;
  const here = await world(t, (request) => {
    const last = request.body.messages.at(-1).content[0];
    if (last.type === 'tool_result') return { text: ['result: ', last.content[0].text] };
    return { toolCalls: [{ name: 'bash', input: { command: commands[next++] } }] };
  });
  if (!here) return;
  const files = { 'AGENTS.md': 'Work.', 'work.sh': 'echo worked in $PWD', 'notes.txt': 'one\n' };
  const first = await here.start(files);
  const turn = await runTurn(first.connection, 'work');
  assert.deepEqual(turn.result, { outcome: 'completed' });
  assert.match(turn.text, /^result: worked in \/workspace\n1000\n\[exit code: 0\]$/);
  await until('both calls are counted', () => here.gateway.usages.length === 2);
  assert.equal(
    first.connection.conversationOfSession(here.gateway.usages[0]?.sessionId ?? ''),
    'conversation-1',
  );
  await first.sandbox.kill();

  const second = await here.start({ ...files, 'work.sh': 'echo version two', 'notes.txt': 'two\n' });
  assert.match((await runTurn(second.connection, 'look')).text, /^result: one\nchanged\necho version two\[?/);
  // The owner is told of it by the log of the sandbox.
  assert.deepEqual(
    second.link.log.after(0).map((line) => line.text),
    ['berth: 1 changed by the agent and kept as they are: "notes.txt"'],
  );

  const { text } = await runTurn(second.connection, 'environment');
  assert.match(text, /MY_SECRET=of the agent/);
  assert.match(text, /gateway\.sock/);
  assert.doesNotMatch(text, new RegExp(`${operatorKey}|key of the agent|/nowhere`));
  second.connection.close();
  assert.equal((await second.sandbox.exited).code, 0);
});

test('in a real sandbox a program of the repository reaches the model over loopback', async (t) => {
  const here = await world(t, () => ({ text: ['hello ', 'there'] }));
  if (!here) return;
  const source = `
    import { createInterface } from 'node:readline';
    const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
    createInterface({ input: process.stdin }).on('line', async (line) => {
      const { id, method, params } = JSON.parse(line);
      if (method === 'initialize') return say({ id, result: { protocolVersion: 1 } });
      if (method === 'session/new') return say({ id, result: { sessionId: 'one' } });
      const response = await fetch(process.env.ANTHROPIC_BASE_URL + '/v1/messages', {
        method: 'POST', headers: { 'x-api-key': process.env.ANTHROPIC_API_KEY, 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'model-1', max_tokens: 10, messages: [{ role: 'user', content: 'hi' }] }) });
      const { content } = await response.json();
      say({ method: 'session/update', params: { sessionId: 'one', update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: response.status + content[0].text } } } });
      say({ id, result: { stopReason: 'end_turn' } });
    });`;
  const { connection } = await here.start({ 'agent.mjs': source }, ['node', 'agent.mjs']);
  assert.equal((await runTurn(connection, 'go')).text, '200hello there');
});

test('in a real sandbox commands run beside the agent, as its user and with a terminal', async (t) => {
  const here = await world(t, () => ({ text: ['hello'] }));
  if (!here) return;
  const { link, sandbox } = await here.start({ 'notes.txt': 'one\n' });
  const plain = await link.control.exec({ command: ['sh', '-c', 'id -u; cat notes.txt; echo $MY_SECRET'] });
  plain.stdin.end();
  assert.equal(await text(plain.stdout), '1000\none\nof the agent\n');
  const terminal = await link.control.exec({
    command: ['bash', '-c', 'tty; stty size'],
    terminal: { columns: 100, rows: 30 },
  });
  assert.match(await text(terminal.stdout), /^\/dev\/pts\/\d+\r\n30 100\r\n$/);
  assert.deepEqual(await terminal.exited, { code: 0, signal: null });
  const rest = await link.control.exec({ command: ['sleep', '600'] });
  await sandbox.kill();
  assert.deepEqual(await rest.exited, { code: null, signal: null });
});
