import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HarnessUpdate, TurnRequest } from '../../src/domain/ports/harness.ts';
import { AcpHarness } from '../../src/harness/acp-harness.ts';
import type { Channel, LinePlace } from '../../src/harness/channel.ts';
import { HarnessError } from '../../src/harness/harness-error.ts';
import { RpcPeer } from '../../src/harness/rpc-peer.ts';

const capabilities = {
  history: true,
  close: true,
  prompt: { image: false, audio: false, embeddedContext: false },
};

/** A channel to a harness that says what the test lets it say; positions count as the launcher's do. */
function talk() {
  const asked: { id: number; method: string }[] = [];
  const notes = new Map<string, unknown>();
  let line: LinePlace = { chars: 0, end: 0 };
  let end = 0;
  const peer = new RpcPeer({
    write: (text) => void asked.push(JSON.parse(text)),
    onNotification: (_method, params) =>
      void channel.onUpdate(params['sessionId'] as string, params['update'], line),
    onRequest: () => null,
    onJunk: () => assert.fail('a line that nobody waits for'),
  });
  const channel: Channel = {
    peer,
    onUpdate: () => false,
    onQuestion: () => assert.fail('no question is put'),
    onRecord: async () => ({}),
    onLine: () => undefined,
    charge: () => undefined,
    wait: () => () => undefined,
    written: () => 0,
    hold: () => () => undefined,
    firstHeld: () => Infinity,
    ack: () => undefined,
    note: (key, value) => void notes.set(key, structuredClone(value)),
    hurry: () => undefined,
    forgive: () => undefined,
    fail: (error) => peer.fail(error),
    end: () => undefined,
  };
  const hear = (text: string) => {
    end += text.length + 1;
    line = { chars: text.length, end };
    peer.line(text);
    channel.onLine(end);
  };
  const askedFor = async (method: string) => {
    // The next turns of the event loop bring it; nothing else is waited for.
    while (asked.at(-1)?.method !== method) await new Promise((resolve) => setImmediate(resolve));
    return asked.pop()!.id;
  };
  return { channel, notes, askedFor, hear };
}

const tells = (update: object) =>
  JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params: { sessionId: 's1', update } });
const says = (text: string) =>
  tells({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
const answers = (id: number, result: object) => JSON.stringify({ jsonrpc: '2.0', id, result });

function said(update: HarnessUpdate): string {
  if (update.kind === 'text') return update.text;
  return update.kind === 'tool' ? `${update.phase} ${update.status}` : update.kind;
}

function turnOf(runId: string, taken: string[]) {
  return {
    runId,
    attempt: 1,
    conversationId: 'c1',
    onUpdate: (update) => void taken.push(said(update)),
    onTold: () => undefined,
    onQuestion: () => assert.fail('no question is put'),
    onRecord: async () => undefined,
    onAcknowledge: async () => undefined,
    ended: Promise.resolve(),
    signal: new AbortController().signal,
  } satisfies Partial<TurnRequest>;
}
const prompted = { content: 'go', source: 'api', extras: null, history: async () => [], resume: [] };

test('A turn that the next process takes up gets nothing of an earlier turn of its session, also when nothing of its own is on record', async () => {
  const first = talk();
  const harness = new AcpHarness(first.channel, capabilities, '/workspace');
  const said: string[] = [];
  // What the launcher keeps, since nobody has acknowledged it.
  const kept: string[] = [];
  const hear = (text: string) => {
    kept.push(text);
    first.hear(text);
  };
  const { askedFor } = first;
  const one = harness.prompt({ ...turnOf('r1', said), ...prompted });
  hear(answers(await askedFor('session/new'), { sessionId: 's1' }));
  const onePrompt = await askedFor('session/prompt');
  hear(says('the answer of the first turn'));
  hear(answers(onePrompt, { stopReason: 'end_turn' }));
  assert.deepEqual(await one, { outcome: 'completed' });
  void harness.prompt({ ...turnOf('r2', said), ...prompted });
  const twoPrompt = await askedFor('session/prompt');
  assert.deepEqual(said, ['the answer of the first turn']);

  // The service is killed, and its next process hears all of it again.
  const second = talk();
  const next = new AcpHarness(second.channel, capabilities, '/workspace');
  const adopted = next.adopted(first.notes, 1, () => undefined);
  const taken: string[] = [];
  const turn = { ...turnOf('r2', taken), told: 0, tools: [], onAskedBefore: () => null };
  second.channel.peer.expect(1).catch(() => undefined);
  second.channel.peer.expect(onePrompt).catch(() => undefined);
  const resumed = adopted.resume(turn);
  for (const text of kept) second.hear(text);
  second.hear(says('that of the second'));
  second.hear(answers(twoPrompt, { stopReason: 'end_turn' }));
  assert.deepEqual(await resumed, { outcome: 'completed' });
  assert.deepEqual(taken, ['that of the second']);
});

test('A call of a tool that was under way is told as failed by a harness that ends its turn, and not by one that is gone', async () => {
  for (const isGone of [false, true]) {
    const { channel, askedFor, hear } = talk();
    const harness = new AcpHarness(channel, capabilities, '/workspace');
    const taken: string[] = [];
    const turn = harness.prompt({ ...turnOf('r1', taken), ...prompted });
    hear(answers(await askedFor('session/new'), { sessionId: 's1' }));
    const prompt = await askedFor('session/prompt');
    hear(tells({ sessionUpdate: 'tool_call', toolCallId: 't1', title: 'run', status: 'in_progress' }));
    if (isGone) channel.fail(new HarnessError('harness_exit', 'The harness ended.'));
    else hear(answers(prompt, { stopReason: 'end_turn' }));
    assert.equal((await turn).outcome, isGone ? 'failed' : 'completed');
    assert.deepEqual(taken, isGone ? ['started running'] : ['started running', 'finished failed']);
  }
});
