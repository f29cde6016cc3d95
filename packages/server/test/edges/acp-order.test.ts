import assert from 'node:assert/strict';
import type { AnyMessage } from '@agentclientprotocol/sdk';
import { test, type TestContext } from 'node:test';
import { acpAgent } from '../../src/edges/acp/agent.ts';
import type { AcpAgentOptions } from '../../src/edges/acp/agent.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

/** A client of an agent whose key is asked for as long as the test wants; `cancelled` are the runs that were stopped. */
async function slowlyAdmitted(t: TestContext) {
  const sent: AnyMessage[] = [];
  const cancelled: string[] = [];
  let sends = 0;
  let admission: Promise<void> = Promise.resolve();
  const services = {
    acpSessions: { create: async () => ({ id: 's' }) },
    runs: {
      send: async () => ({ runId: `r${(sends += 1)}`, conversationId: 's', replayed: false }),
      cancel: async (_caller: unknown, runId: string) => void cancelled.push(runId),
    },
    events: { follow: async () => () => undefined },
  } as unknown as AcpAgentOptions['services'];
  const app = acpAgent({
    services,
    agent: { id: 'a', name: 'A' } as AcpAgentOptions['agent'],
    caller: { keyId: 'k' } as AcpAgentOptions['caller'],
    requestId: 'q',
    log: silentLog,
    admit: () => admission,
    onConnect: () => undefined,
  });
  const inbound = new TransformStream<AnyMessage, AnyMessage>();
  const connection = app.connect({
    readable: inbound.readable,
    writable: new WritableStream({ write: (message) => void sent.push(message) }),
  });
  t.after(() => connection.close());
  const writer = inbound.writable.getWriter();
  const write = (message: object) => writer.write({ jsonrpc: '2.0', ...message } as AnyMessage);
  const answerTo = async (id: string) => {
    const find = () => sent.find((one) => 'id' in one && one.id === id) as { result?: unknown } | undefined;
    await until('it is answered', () => find() !== undefined);
    return find()!;
  };
  await write({ id: 'i', method: 'initialize', params: { protocolVersion: 1 } });
  await answerTo('i');
  await write({ id: 'n', method: 'session/new', params: { cwd: '/', mcpServers: [] } });
  await answerTo('n');
  const gate = Promise.withResolvers<void>();
  admission = gate.promise;
  await write({
    id: 'p',
    method: 'session/prompt',
    params: { sessionId: 's', prompt: [{ type: 'text', text: 'x' }] },
  });
  /** When all that was written before has reached its handler: asking for the version needs no admission. */
  const admit = async () => {
    await write({ id: 'r', method: 'initialize', params: { protocolVersion: 1 } });
    await answerTo('r');
    gate.resolve();
  };
  return { write, answerTo, cancelled, admit };
}

test('a cancel does not overtake the prompt that came before it, however long the key of that is looked up', async (t) => {
  const { write, cancelled, admit } = await slowlyAdmitted(t);
  await write({ method: 'session/cancel', params: { sessionId: 's' } });
  await admit();
  await until('the run is stopped', () => cancelled.includes('r1'));
});

test('a prompt whose request is cancelled before it has begun is stopped', async (t) => {
  const { write, cancelled, admit } = await slowlyAdmitted(t);
  await write({ method: '$/cancel_request', params: { requestId: 'p' } });
  await admit();
  await until('the run is stopped', () => cancelled.includes('r1'));
});

test('a session that is closed while a prompt of it is being accepted ends that prompt', async (t) => {
  const { write, answerTo, cancelled, admit } = await slowlyAdmitted(t);
  await write({ id: 'c', method: 'session/close', params: { sessionId: 's' } });
  await admit();
  assert.deepEqual((await answerTo('p')).result, { stopReason: 'cancelled' });
  assert.deepEqual(cancelled, ['r1']);
});
