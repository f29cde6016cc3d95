import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventProblems } from '../support/contract.ts';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import type { SseClient, SseFrame } from '../support/sse.ts';
import { openSse } from '../support/sse.ts';
import { inTime, until } from '../support/until.ts';

let idle: Promise<{ stream: SseClient; conversationId: string; commentAfterMs: () => number }> | undefined;
/** A timer of Node's may come a moment early. */
const EARLY_MS = 10;
after(async () => {
  (await idle)?.stream.close();
  await endSharedWorld();
});

interface ReadEvent {
  seq: number;
  type: string;
  at: string;
  data: Record<string, unknown>;
}

/** The event of a frame, whose three lines must say the same. */
function eventOf(frame: SseFrame): ReadEvent {
  const event = JSON.parse(frame.data!) as ReadEvent;
  assert.deepEqual(eventProblems(event), []);
  assert.deepEqual([frame.id, frame.event], [String(event.seq), event.type]);
  return event;
}

const follow = (world: World, path: string, headers: Record<string, string> = {}) =>
  openSse(`${world.service.url}${path}`, { key: world.keys.owner, headers });

/** Starts a run and does not wait for it. */
async function begin(world: World, content: string, conversationId: string | null = null) {
  const sent = await world.send(content, { conversationId }, { prefer: 'respond-async' });
  assert.equal(sent.status, 202, sent.text);
  return sent.body as { conversationId: string; runId: string };
}

const counted = (to: number) => Array.from({ length: to }, (_, index) => `${index + 1} `).join('');

/** The deltas of each run joined, in order. */
function texts(events: ReadEvent[]): string[] {
  const joined = new Map<unknown, string>();
  for (const { type, data } of events) {
    if (type === 'message.delta')
      joined.set(data['runId'], (joined.get(data['runId']) ?? '') + String(data['text']));
  }
  return [...joined.values()];
}

/** A small generator (mulberry32), so that a failure can be had again from its seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

test('an idle stream is opened, to be looked at in the last test', async () => {
  const world = await sharedWorld();
  const { conversationId } = (await world.send('then nothing')).body;
  const askedMs = performance.now();
  idle = follow(world, `/v1/conversations/${conversationId}/events`).then((stream) => {
    let afterMs = NaN;
    stream.response.on('data', () => {
      if (stream.comments > 0 && Number.isNaN(afterMs)) afterMs = performance.now() - askedMs;
    });
    return { stream, conversationId, commentAfterMs: () => afterMs };
  });
  const { stream } = await idle;
  assert.deepEqual(
    [stream.status, stream.headers['content-type']],
    [200, 'text/event-stream; charset=utf-8'],
  );
  assert.match(stream.headers['ratelimit'] as string, /^"default";r=\d+;t=\d+$/);
});

test('a stream cut 100 times at random and resumed misses no event, has none twice, and its text is the message', async (t) => {
  const world = await sharedWorld();
  const seed = Number(process.env['BERTH_TEST_SEED'] ?? randomInt(2 ** 31));
  t.diagnostic(`seed ${seed}; BERTH_TEST_SEED=${seed} repeats it`);
  const next = random(seed);
  let run = await begin(world, 'count: 300 5');
  const { conversationId } = run;
  const path = `/v1/conversations/${conversationId}/events`;
  const events: ReadEvent[] = [];
  let runs = 1;
  const take = (stream: SseClient) => events.push(...stream.frames.map(eventOf));
  for (let cuts = 0; cuts < 100; cuts += 1) {
    const last = String(events.at(-1)?.seq ?? 0);
    const stream =
      next() < 0.5
        ? await follow(world, path, { 'last-event-id': last })
        : await follow(world, `${path}?after=${last}`);
    const wanted = Math.floor(next() * 6);
    await until('events come', () => stream.frames.length >= wanted || next() < 0.02);
    await delay(next() * 10);
    stream.close();
    take(stream);
    if (events.some(({ type, data }) => type === 'run.completed' && data['runId'] === run.runId)) {
      run = await begin(world, 'count: 300 5', conversationId);
      runs += 1;
    }
  }
  const rest = await follow(world, path, { 'last-event-id': String(events.at(-1)!.seq) });
  await until('the last run has ended', () =>
    rest.frames.some(({ event, data }) => event === 'run.completed' && data!.includes(run.runId)),
  );
  rest.close();
  take(rest);
  assert.deepEqual(
    events.map(({ seq }) => seq),
    events.map((_, index) => index + 1),
  );
  assert.deepEqual(texts(events), Array<string>(runs).fill(counted(300)));
  const { messages } = (await world.call('GET', `/v1/conversations/${conversationId}/messages?limit=100`))
    .body;
  const answers = messages.filter(({ role }: { role: string }) => role === 'assistant');
  assert.deepEqual(
    answers.map(({ content }: { content: string }) => content),
    texts(events),
  );
});

test('a client that goes away in mid-stream stops nothing', async () => {
  const world = await sharedWorld();
  const stream = await openSse(`${world.service.url}/api/v1/chat/send`, {
    key: world.keys.owner,
    method: 'POST',
    body: { agentId: world.agentId, content: 'count: 100 10', stream: true },
  });
  await until('the answer has begun', () => stream.frames.some(({ event }) => event === 'message.delta'));
  stream.close();
  const runId = eventOf(stream.frames[0]!).data['runId'];
  assert.equal(stream.headers['content-location'], `/v1/runs/${String(runId)}/events`);
  const rest = await follow(world, `/v1/runs/${String(runId)}/events`);
  await until('the run has ended', () => rest.ended);
  assert.equal(rest.frames.at(-1)?.event, 'run.completed');
  assert.deepEqual(texts(rest.frames.map(eventOf)), [counted(100)]);
  assert.deepEqual(rest.frames.slice(0, stream.frames.length - 1), stream.frames.slice(0, -1));
});

test('a JSON client that goes away stops nothing either', async () => {
  const world = await sharedWorld();
  const body = JSON.stringify({ agentId: world.agentId, content: 'count: 40 10 away' });
  const cut = new AbortController();
  const asked = fetch(`${world.service.url}/api/v1/chat/send`, {
    method: 'POST',
    body,
    headers: { authorization: `Bearer ${world.keys.owner}`, 'content-type': 'application/json' },
    signal: cut.signal,
  });
  await until('the model is asked', () =>
    world.model.requests.some(({ bodyBytes }) => bodyBytes.includes('count: 40 10 away')),
  );
  cut.abort();
  await assert.rejects(asked);
  const last = async () => (await world.call('GET', `/v1/agents/${world.agentId}/runs?limit=1`)).body.runs[0];
  await until('the run has ended', async () => (await last()).status === 'completed');
});

test("a run's stream ends with the run, a conversation's stays open, and two viewers see the same", async () => {
  const world = await sharedWorld();
  const { conversationId, runId } = await begin(world, 'count: 60 5');
  const of = (path: string) => follow(world, path);
  const [one, two] = [await of(`/v1/runs/${runId}/events`), await of(`/v1/runs/${runId}/events`)];
  const whole = await of(`/v1/conversations/${conversationId}/events`);
  await until('both have ended', () => one.ended && two.ended);
  assert.deepEqual(two.frames, one.frames);
  await until('the conversation has as many', () => whole.frames.length === one.frames.length);
  assert.deepEqual(whole.frames, one.frames);
  assert.equal(whole.ended, false);
  const second = await begin(world, 'the second turn', conversationId);
  await until('its end is seen', () =>
    whole.frames.some(({ event, data }) => event === 'run.completed' && data!.includes(second.runId)),
  );
  assert.equal(whole.ended, false);
  whole.close();
  const after = await of(`/v1/runs/${second.runId}/events`);
  await until('the stream of an ended run ends at once', () => after.ended);
  const events = after.frames.map(eventOf);
  assert.ok(events.every(({ data }) => data['runId'] === second.runId));
  const beyond = await follow(world, `/v1/runs/${runId}/events`, {
    'last-event-id': String(events.at(-1)!.seq),
  });
  await until('a stream after the end ends', () => beyond.ended);
  assert.deepEqual(beyond.frames, []);
});

test('of what Accept names, the one with the greater weight is answered', async () => {
  const world = await sharedWorld();
  const { runId } = (await world.send('hello')).body;
  for (const [accept, type] of [
    ['text/event-stream', 'text/event-stream'],
    ['application/json, text/event-stream', 'text/event-stream'],
    ['application/json, text/event-stream;q=0.5', 'application/json'],
    ['Application/JSON;q=0.2, Text/Event-Stream; q=0.5', 'text/event-stream'],
    ['text/event-stream;q=0', 'application/json'],
    ['*/*', 'application/json'],
  ] as const) {
    const reply = await world.call('GET', `/v1/runs/${runId}/events`, undefined, { accept });
    assert.equal(reply.headers.get('content-type')?.split(';')[0], type, accept);
  }
});

test('events as JSON are the events of the stream, oldest first after a seq and newest first by pages', async () => {
  const world = await sharedWorld();
  const { conversationId, runId } = (await world.send('count: 20 3')).body;
  for (const path of [`/v1/conversations/${conversationId}/events`, `/v1/runs/${runId}/events`]) {
    const stream = await follow(world, path);
    await until('the end is seen', () => stream.frames.some(({ event }) => event === 'run.completed'));
    stream.close();
    const events = stream.frames.map(eventOf);
    const forward: ReadEvent[] = [];
    for (let more = true; more;) {
      const page = await world.call('GET', `${path}?limit=3&after=${forward.at(-1)?.seq ?? 0}`);
      forward.push(...(page.body.events as ReadEvent[]));
      more = page.body.hasMore as boolean;
    }
    assert.deepEqual(forward, events);
    const backward: ReadEvent[] = [];
    for (let cursor: string | null = ''; cursor !== null;) {
      const page = await world.call('GET', `${path}?limit=3${cursor && `&cursor=${cursor}`}`);
      backward.push(...(page.body.events as ReadEvent[]));
      cursor = page.body.nextCursor as string | null;
    }
    assert.deepEqual(backward.reverse(), events);
    for (const bad of ['-1', 'x', '1.5', '']) {
      const reply = await world.call('GET', `${path}?after=${bad}`);
      assert.deepEqual([reply.status, reply.body.code], [400, 'invalid_request'], bad);
    }
    const header = await world.call('GET', path, undefined, {
      accept: 'text/event-stream',
      'last-event-id': 'x',
    });
    assert.deepEqual([header.status, header.body.code], [400, 'invalid_request']);
  }
});

test('Prefer: respond-async answers 202 at once, wait=N after N seconds, and 200 when the run ends before', async () => {
  const world = await sharedWorld();
  const held = await world.send('hold: prefer', {}, { prefer: 'respond-async' });
  assert.equal(held.status, 202);
  const { runId, conversationId } = held.body;
  assert.equal(held.headers.get('location'), `/v1/runs/${runId}`);
  assert.equal(held.headers.get('preference-applied'), 'respond-async');
  assert.equal(held.body.message, null);
  const startedAt = performance.now();
  const waited = await world.send('behind it', { conversationId }, { prefer: 'wait=1' });
  const ms = performance.now() - startedAt;
  assert.ok(ms >= 1_000 && ms < 30_000, `it took ${ms} ms`);
  assert.deepEqual([waited.status, waited.body.status], [202, 'queued']);
  assert.equal(waited.headers.get('preference-applied'), 'wait=1');
  world.release('prefer');
  const run = `${waited.headers.get('location')}`;
  await until('both runs end', async () => (await world.call('GET', run)).body.run.status === 'completed');
  const quick = await world.send('quick', {}, { prefer: 'wait=30' });
  assert.deepEqual([quick.status, quick.body.message.content], [200, 'QUICK']);
  for (const bad of ['wait=-1', 'wait=601', 'wait=x', 'wait']) {
    const reply = await world.send('bad', {}, { prefer: bad });
    assert.deepEqual([reply.status, reply.body.code], [400, 'invalid_request'], bad);
  }
});

test('interrupt cancels the run under way, and cancel ends a stream with run.cancelled', async () => {
  const world = await sharedWorld();
  const first = await begin(world, 'count: 1000 20');
  const { conversationId } = first;
  const stream = await follow(world, `/v1/runs/${first.runId}/events`);
  await until('it has begun to answer', () => stream.frames.some(({ event }) => event === 'message.delta'));
  const second = await world.send('instead', { conversationId, onBusy: 'interrupt' });
  assert.deepEqual([second.status, second.body.message.content], [200, 'INSTEAD']);
  await until('the first stream has ended', () => stream.ended);
  assert.equal(stream.frames.at(-1)?.event, 'run.cancelled');
  const third = await begin(world, 'count: 1000 20', conversationId);
  const other = await follow(world, `/v1/runs/${third.runId}/events`);
  await until('it has begun to answer', () => other.frames.some(({ event }) => event === 'message.delta'));
  const cancelled = await world.call('POST', `/v1/runs/${third.runId}/cancel`);
  assert.deepEqual([cancelled.status, cancelled.body.run.status], [200, 'cancelled']);
  await until('the stream has ended', () => other.ended);
  assert.equal(other.frames.at(-1)?.event, 'run.cancelled');
});

test('an idle stream gets no comment before 15 seconds, then one, stays open, and then the next event', async () => {
  const world = await sharedWorld();
  const { stream, conversationId, commentAfterMs } = await idle!;
  await until('a comment has come', () => commentAfterMs() > 0);
  assert.ok(commentAfterMs() > 15_000 - EARLY_MS, `the first came after ${commentAfterMs()} ms`);
  assert.equal(stream.ended, false);
  const before = stream.frames.length;
  const { runId } = (await world.send('and now', { conversationId })).body;
  await until('its events come', () =>
    stream.frames.some(({ event, data }) => event === 'run.completed' && data!.includes(runId)),
  );
  assert.equal(eventOf(stream.frames[before]!).seq, before + 1);
});

test('what is followed and deleted ends its streams and answers those who wait, and so does the key', async () => {
  const world = await sharedWorld();
  const made = await world.call('POST', '/v1/agents', { name: 'Not for long' });
  const agentId = made.body.agent.id as string;
  const events = (one: { conversationId: string; runId: string }) => [
    `/v1/conversations/${one.conversationId}/events`,
    `/v1/runs/${one.runId}/events`,
  ];
  const sends = async (name: string) => {
    const sent = await world.send(`hold: ${name}`, { agentId }, { prefer: 'respond-async' });
    assert.equal(sent.status, 202);
    const { conversationId, runId } = sent.body as { conversationId: string; runId: string };
    const streams = await Promise.all(events(sent.body).map((path) => follow(world, path)));
    const behind = world.send('behind it', { agentId, conversationId });
    await until(
      'two runs are there',
      () => streams[0]!.frames.filter(({ event }) => event === 'run.queued').length === 2,
    );
    return { conversationId, runId, streams, behind };
  };
  const ended = (streams: SseClient[]) => until('the streams end', () => streams.every((one) => one.ended));

  const first = await sends('deleted-1');
  assert.equal((await world.call('DELETE', `/v1/conversations/${first.conversationId}`)).status, 204);
  await ended(first.streams);
  const answered = await inTime('a send into the deleted conversation is answered', first.behind);
  assert.ok(answered.status === 404 || answered.body.status === 'cancelled', answered.text);

  const { body } = await world.call('POST', `/v1/agents/${agentId}/api-keys`, { name: 'watcher' });
  const second = await sends('deleted-2');
  const watched = await openSse(`${world.service.url}${events(second)[0]}`, { key: body.value });
  await until('it has begun', () => watched.frames.length > 0);
  await world.call('DELETE', `/v1/agents/${agentId}/api-keys/${body.key.id}`);
  await until('the stream of the revoked key ends', () => watched.ended);
  assert.ok(second.streams.every((one) => !one.ended));

  const idleOne = await world.send('hold: nothing', { agentId }, { prefer: 'respond-async' });
  assert.equal((await world.call('DELETE', `/v1/agents/${agentId}`)).status, 204);
  await ended(second.streams);
  const last = await inTime('a send to the deleted agent is answered', second.behind);
  assert.ok(last.status === 404 || last.body.status === 'cancelled', last.text);
  assert.equal((await world.call('GET', `/v1/runs/${idleOne.body.runId}`)).status, 404);
});

test('a run stream that is asked for beyond its end ends with the run', async () => {
  const world = await sharedWorld();
  const { runId } = await begin(world, 'hold: beyond');
  const stream = await follow(world, `/v1/runs/${runId}/events?after=999999999`);
  world.release('beyond');
  await until('it has ended', () => stream.ended);
  assert.deepEqual(stream.frames, []);
});
