import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { harnessLinks } from '../../src/harness/link.ts';
import { commit, markDeployed, runTurn } from '../support/harness-fixture.ts';
import { launchEnv, makePlaces, startLauncher } from '../support/local-harness.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

/** Answers `initialize` once there is a file `go`, and writes down what it was asked. */
const slow = `
  import { createInterface } from 'node:readline';
  import { appendFileSync, existsSync } from 'node:fs';
  const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
  const capabilities = { promptCapabilities: { image: true }, _meta: { 'berth.dev': { history: true } } };
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    appendFileSync('asked', method + '\\n');
    if (method === 'session/new') return say({ id, result: { sessionId: 'one' } });
    if (method === 'session/prompt') {
      const content = { type: 'text', text: params.prompt[0].text };
      const update = { sessionUpdate: 'agent_message_chunk', content };
      say({ method: 'session/update', params: { sessionId: 'one', update } });
      return say({ id, result: { stopReason: 'end_turn' } });
    }
    const answer = () => existsSync('go')
      ? say({ id, result: { protocolVersion: 1, agentCapabilities: capabilities } })
      : setTimeout(answer, 10);
    answer();
  });`;

/** A launcher with that harness. Each link is a process of the service, one after another. */
async function open(t: TestContext) {
  const places = await makePlaces();
  t.after(places.remove);
  await markDeployed(places);
  writeFileSync(join(places.workspace, 'agent.mjs'), slow);
  const command = JSON.stringify(['node', 'agent.mjs']);
  const sandbox = await startLauncher(
    places,
    launchEnv('anthropic', commit, { BERTH_HARNESS_COMMAND: command }),
  );
  t.after(() => sandbox.kill());
  const openLink = harnessLinks({ log: silentLog, workspace: places.workspace });
  const asked = join(places.workspace, 'asked');
  return {
    asked: () => (existsSync(asked) ? readFileSync(asked, 'utf8').trim().split('\n') : []),
    speak: () => writeFileSync(join(places.workspace, 'go'), ''),
    async connect() {
      const link = await openLink({ socketPath: places.controlSocket, sandboxId: 'local' });
      t.after(() => link.leave());
      const connection = link.connect(sandbox, { initializeTimeoutMs: 60_000 });
      // That of a process that is killed is nobody's any more.
      connection.catch(() => undefined);
      return { link, connection };
    },
  };
}

test('a harness whose service ended before it had answered `initialize` is not asked again, and its turn goes as in any other', async (t) => {
  const { asked, speak, connect } = await open(t);
  for (let lives = 0; lives < 3; lives += 1) {
    const { link } = await connect();
    await until('it is asked', () => asked().length === 1);
    link.leave();
  }
  const { connection } = await connect();
  speak();
  const { text, result } = await runTurn(await connection, 'and on');
  assert.deepEqual([text, result.outcome], ['and on', 'completed']);
  assert.deepEqual(asked(), ['initialize', 'session/new', 'session/prompt']);
});

test('the answer to `initialize` that no service has read yet is told to the next one', async (t) => {
  const { asked, speak, connect } = await open(t);
  const first = await connect();
  await until('it is asked', () => asked().length === 1);
  first.link.leave();
  speak();
  const second = await connect();
  await second.connection;
  // As if it had been killed before it wrote down that the sandbox runs.
  second.link.leave();
  const third = await connect();
  assert.equal((await runTurn(await third.connection, 'hi')).text, 'hi');
  assert.deepEqual(asked(), ['initialize', 'session/new', 'session/prompt']);
});

test('a launcher that no service has welcomed is asked by the one that takes it up', async (t) => {
  const { asked, speak, connect } = await open(t);
  speak();
  const { connection } = await connect();
  assert.equal((await runTurn(await connection, 'hi')).text, 'hi');
  assert.deepEqual(asked(), ['initialize', 'session/new', 'session/prompt']);
});
