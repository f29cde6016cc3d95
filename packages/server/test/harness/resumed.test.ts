import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HarnessUpdate, TurnRequest } from '../../src/domain/ports/harness.ts';
import { AcpHarness } from '../../src/harness/acp-harness.ts';
import type { Channel, LinePlace } from '../../src/harness/channel.ts';
import type { Json } from '../../src/harness/clean.ts';
import { HarnessError } from '../../src/harness/harness-error.ts';
import type { QuestionMethod } from '../../src/harness/questions.ts';
import { RpcPeer } from '../../src/harness/rpc-peer.ts';
import type { Answer, Question } from '../../src/domain/questions.ts';

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
  /** What left, in order: as the endpoint's, notes go with what is written next in the same tick. */
  const left: { asked: unknown[]; keys: string[]; message: Json | null }[] = [];
  let leaving: unknown[] = [];
  let keys: string[] = [];
  const leave = (message: Json | null) => {
    if (message || keys.length > 0) left.push({ asked: leaving, keys, message });
    leaving = [];
    keys = [];
  };
  const peer = new RpcPeer({
    write(text) {
      const message = JSON.parse(text);
      asked.push(message);
      leave(message);
    },
    onNotification: (_method, params) =>
      void channel.onUpdate(params['sessionId'] as string, params['update'], line),
    onRequest: (method, params, id) => channel.onQuestion(method as QuestionMethod, id, params, line),
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
    note(key, value) {
      if (value === null) notes.delete(key);
      else notes.set(key, structuredClone(value));
      keys.push(key);
      if (key.startsWith('session:') && value !== null)
        leaving.push(structuredClone((value as { turn: { asked: object } }).turn.asked));
      process.nextTick(() => leave(null));
    },
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
  const answered = (id: string) => left.filter(({ message }) => message?.['id'] === id);
  return { channel, notes, left, askedFor, hear, answered };
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

const asks = JSON.stringify({
  jsonrpc: '2.0',
  id: 'q1',
  method: 'session/request_permission',
  params: { sessionId: 's1', options: [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }] },
});
const yes: Answer = { kind: 'permission', optionId: 'yes' };
/** Some turns of the event loop: whatever is answered at once has left by then. */
async function settled(): Promise<void> {
  for (let turns = 0; turns < 5; turns += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** A turn that has asked when the service is killed, and that the next process takes up. */
async function takenUp(
  options: { told: number; onAskedBefore: () => Promise<Answer> | null },
  answeredBefore?: Answer,
) {
  const first = talk();
  const harness = new AcpHarness(first.channel, capabilities, '/workspace');
  const questions: Question[] = [];
  const onQuestion = (question: Question, recorded: () => void) => {
    questions.push(question);
    recorded();
    return answeredBefore ? Promise.resolve(answeredBefore) : new Promise<Answer>(() => undefined);
  };
  void harness.prompt({ ...turnOf('r1', []), ...prompted, onQuestion });
  first.hear(answers(await first.askedFor('session/new'), { sessionId: 's1' }));
  const prompt = await first.askedFor('session/prompt');
  first.hear(asks);
  assert.equal(questions.length, 1);
  if (answeredBefore) await settled();

  const second = talk();
  second.channel.peer.expect(1).catch(() => undefined);
  const adopted = new AcpHarness(second.channel, capabilities, '/workspace').adopted(
    first.notes,
    1,
    () => undefined,
  );
  const asked: Question[] = [];
  const answer = Promise.withResolvers<Answer>();
  const result = adopted.resume({
    ...turnOf('r1', []),
    tools: [],
    ...options,
    onQuestion(question, recorded) {
      asked.push(question);
      recorded();
      return answer.promise;
    },
  });
  // What the launcher sends again, since nobody has acknowledged it.
  second.hear(answers(1, { sessionId: 's1' }));
  second.hear(asks);
  await settled();
  return { ...second, first: questions[0]!, asked, answer, prompt, result };
}

for (const told of [0, 1_000_000])
  test(`A question that an earlier process has put on record is answered once, and its line not asked anew${told === 0 ? ', also where what was told before it is not on record' : ''}.`, async () => {
    const answer = Promise.withResolvers<Answer>();
    const turn = await takenUp({ told, onAskedBefore: () => answer.promise });
    assert.deepEqual([turn.asked, turn.answered('q1')], [[], []]);
    answer.resolve(yes);
    await settled();
    const [given, ...more] = turn.answered('q1');
    assert.deepEqual(given?.message?.['result'], { outcome: { outcome: 'selected', optionId: 'yes' } });
    assert.deepEqual(given?.asked, [{}], 'its note leaves with it');
    assert.deepEqual(more, []);
    // The harness may name its next question alike.
    if (told === 0) {
      turn.hear(asks);
      assert.equal(turn.asked.length, 1);
    }
  });

test('A question of which only its launcher knows is asked by its line, and the note of the earlier process forgotten.', async () => {
  const turn = await takenUp({ told: 0, onAskedBefore: () => null });
  assert.equal(turn.asked.length, 1);
  const note = turn.notes.get('session:c1') as { turn: { asked: object } };
  assert.deepEqual(note.turn.asked, { [turn.asked[0]!.requestId]: 'q1' });
  turn.answer.resolve(yes);
  await settled();
  assert.equal(turn.answered('q1').length, 1);
  assert.deepEqual((turn.notes.get('session:c1') as typeof note).turn.asked, {});
});

test('A question of an earlier process that is resolved after the end of its turn is answered, and nothing fails.', async () => {
  const answer = Promise.withResolvers<Answer>();
  const turn = await takenUp({ told: 1_000_000, onAskedBefore: () => answer.promise });
  turn.hear(answers(turn.prompt, { stopReason: 'end_turn' }));
  assert.deepEqual(await turn.result, { outcome: 'completed' });
  answer.resolve({ kind: 'permission', optionId: null });
  await settled();
  assert.deepEqual(
    turn.answered('q1').map(({ message }) => message?.['result']),
    [{ outcome: { outcome: 'cancelled' } }],
  );
});

test('A question that comes to be on record, or is answered, takes nothing back of what lines behind it have told.', async () => {
  const { channel, askedFor, hear } = talk();
  const told: number[] = [];
  let recorded = (): void => assert.fail('it has asked');
  const harness = new AcpHarness(channel, capabilities, '/workspace');
  void harness.prompt({
    ...turnOf('r1', []),
    ...prompted,
    onTold: (end) => void told.push(end),
    onQuestion(_question, done) {
      recorded = done;
      return new Promise(() => undefined);
    },
  });
  hear(answers(await askedFor('session/new'), { sessionId: 's1' }));
  await askedFor('session/prompt');
  hear(asks);
  hear(says('behind'));
  const before = told.at(-1)!;
  recorded();
  const behind = told.at(-1)!;
  assert.ok(behind > before + says('behind').length, `${told}`);
  hear(says('more'));
  const more = told.at(-1)!;
  assert.ok(more > behind);
  // As after the answer.
  recorded();
  assert.equal(told.at(-1), more);
});

/** The next process, to which the launcher sends again what nobody has acknowledged: no turn of it goes on. */
function afterwards(
  notes: Map<string, unknown>,
  lines: string[],
  prompt: number,
  { close = true, underWay = [] as string[] } = {},
) {
  const next = talk();
  for (const id of [1, prompt]) next.channel.peer.expect(id).catch(() => undefined);
  const harness = new AcpHarness(next.channel, { ...capabilities, close }, '/workspace');
  harness.adopted(new Map(notes), 1, () => undefined).begin(new Set(underWay));
  for (const text of lines) next.hear(text);
  return next;
}

test('A question that was answered is not answered again when its line comes to the next process after the end of its turn, and a later one of its name is.', async () => {
  for (const answer of [yes, { kind: 'permission', optionId: null } as const]) {
    const first = talk();
    const harness = new AcpHarness(first.channel, capabilities, '/workspace');
    const lines: string[] = [];
    const hear = (text: string) => {
      lines.push(text);
      first.hear(text);
    };
    const given = Promise.withResolvers<Answer>();
    const turn = harness.prompt({ ...turnOf('r1', []), ...prompted, onQuestion: () => given.promise });
    hear(answers(await first.askedFor('session/new'), { sessionId: 's1' }));
    const prompt = await first.askedFor('session/prompt');
    hear(asks);
    await settled();
    given.resolve(answer);
    await settled();
    assert.deepEqual(first.answered('q1')[0]!.keys, ['session:c1', 'answered'], 'in one write with its note');
    hear(answers(prompt, { stopReason: 'end_turn' }));
    await turn;

    const second = afterwards(first.notes, lines, prompt);
    await settled();
    assert.deepEqual(second.answered('q1'), []);
    // Nobody is there to answer it, and the harness waits.
    second.hear(asks);
    await settled();
    assert.equal(second.answered('q1').length, 1);
  }
});

test('A question that the next process has answered is not answered again by the one after that.', async () => {
  const answer = Promise.withResolvers<Answer>();
  const turn = await takenUp({ told: 0, onAskedBefore: () => answer.promise });
  answer.resolve(yes);
  await settled();
  turn.hear(answers(turn.prompt, { stopReason: 'end_turn' }));
  await turn.result;
  const lines = [answers(1, { sessionId: 's1' }), asks, answers(turn.prompt, { stopReason: 'end_turn' })];
  const third = afterwards(turn.notes, lines, turn.prompt);
  await settled();
  assert.deepEqual([turn.answered('q1').length, third.answered('q1')], [1, []]);
});

test('A question that policy answered, and that is not on record, is asked anew by its line in the turn that is taken up.', async () => {
  const turn = await takenUp({ told: 0, onAskedBefore: () => null }, yes);
  assert.equal(turn.asked.length, 1);
});

test('A turn that nobody takes up is cancelled in a harness that closes no session.', async () => {
  const first = talk();
  const harness = new AcpHarness(first.channel, capabilities, '/workspace');
  void harness.prompt({ ...turnOf('r1', []), ...prompted });
  first.hear(answers(await first.askedFor('session/new'), { sessionId: 's1' }));
  const prompt = await first.askedFor('session/prompt');
  for (const underWay of [['c1'], []]) {
    const next = afterwards(first.notes, [], prompt, { close: false, underWay });
    await settled();
    const told = next.left.flatMap(({ message }) =>
      message ? [[message['method'], message['params']]] : [],
    );
    // One that is idle is none of its business.
    assert.deepEqual(
      told,
      underWay.map(() => ['session/cancel', { sessionId: 's1' }]),
    );
  }
});

test('However many conversations a harness has had, those with a turn and the last are noted, and fewer in all than a launcher may tell of.', async () => {
  const { channel, notes, askedFor, hear } = talk();
  const harness = new AcpHarness(channel, { ...capabilities, history: false }, '/workspace');
  const begin = async (n: number) => {
    const turn = harness.prompt({ ...turnOf(`r${n}`, []), ...prompted, conversationId: `c${n}` });
    hear(answers(await askedFor('session/new'), { sessionId: `s${n}` }));
    return { turn, prompt: await askedFor('session/prompt') };
  };
  await begin(0);
  for (let n = 1; n < 1005; n += 1) {
    const { turn, prompt } = await begin(n);
    hear(answers(prompt, { stopReason: 'end_turn' }));
    await turn;
  }
  await begin(1005);
  assert.equal(notes.size, 900);
  const isNoted = (n: number) => notes.has(`session:c${n}`);
  assert.deepEqual([0, 1, 100, 1004, 1005].map(isNoted), [true, false, false, true, true]);
});

test('A note has room for all the questions that may be open, whose ids are as long as they may be.', async () => {
  const { channel, notes, askedFor, hear, answered } = talk();
  const harness = new AcpHarness(channel, capabilities, '/workspace');
  const onQuestion = () => new Promise<Answer>(() => undefined);
  void harness.prompt({ ...turnOf('r1', []), ...prompted, onQuestion });
  hear(answers(await askedFor('session/new'), { sessionId: 's1' }));
  await askedFor('session/prompt');
  const { params } = JSON.parse(asks) as { params: object };
  const ask = (id: string) =>
    hear(JSON.stringify({ jsonrpc: '2.0', id, method: 'session/request_permission', params }));
  // Written as JSON it is twice as long.
  const quotes = '"'.repeat(150);
  ask(quotes);
  await settled();
  assert.equal(answered(quotes).length, 1);
  for (let n = 10; n < 42; n += 1) ask(`${n}${'x'.repeat(198)}`);
  await settled();
  const [note] = [...notes].filter(([key]) => key.startsWith('session:'));
  const { asked } = (note![1] as { turn: { asked: object } }).turn;
  assert.equal(Object.keys(asked).length, 32);
  const told = JSON.stringify(note);
  assert.ok(told.length > 7000 && told.length < 10_000, `${told.length} characters`);
});
