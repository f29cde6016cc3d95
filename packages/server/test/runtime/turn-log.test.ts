import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EventBody } from '../../src/domain/events.ts';
import { TurnLog } from '../../src/runtime/turn-log.ts';
import { seeded } from '../support/scripts.ts';
import { until } from '../support/until.ts';

function open(isWatched = true) {
  const events: EventBody[] = [];
  const told: number[] = [];
  const log = new TurnLog({
    runId: 'r',
    messageId: 'm',
    append: (...more) => void events.push(...more),
    isWatched: () => isWatched,
    told: (position) => void told.push(position),
  });
  const text = () => events.flatMap((e) => (e.type === 'message.delta' ? [e.data.text] : [])).join('');
  return { events, log, text, told };
}

test('the first text goes out at once, what follows is joined', async () => {
  const { events, log } = open();
  log.take({ kind: 'text', text: 'a' });
  assert.equal(events.length, 1);
  for (const text of ['b', 'c', 'd']) log.take({ kind: 'text', text });
  assert.equal(events.length, 1);
  await until('the rest went out', () => events.length === 2);
  assert.deepEqual(events[1], { type: 'message.delta', data: { runId: 'r', messageId: 'm', text: 'bcd' } });
});

test('text that is cut anywhere is whole again, and what no text can hold is replaced', () => {
  const original = 'a😀b\u0000c\ud83dd😀😀e\udc00';
  const clean = 'a😀b\ufffdc\ufffdd😀😀e\ufffd';
  const random = seeded(3);
  for (let round = 0; round < 200; round += 1) {
    const { log, text } = open();
    for (let at = 0; at < original.length;) {
      const length = 1 + Math.floor(random() * 3);
      log.take({ kind: 'text', text: original.slice(at, at + length) });
      at += length;
    }
    log.close();
    assert.equal(log.content, clean);
    assert.equal(text(), clean);
  }
});

test('half a character is not taken for told: it is in no event yet', () => {
  const { log, text, told } = open();
  log.take({ kind: 'text', text: 'a\ud83d' });
  log.told(10);
  log.flush();
  assert.deepEqual(
    told.filter((position) => position >= 10),
    [],
  );
  log.take({ kind: 'text', text: '\ude00' });
  log.told(20);
  log.flush();
  assert.equal(told.at(-1), 20);
  assert.equal(text(), 'a😀');
});

test('text after a tool call is a paragraph of its own, and everything keeps its order', () => {
  const { events, log, text } = open(false);
  const call = { kind: 'tool', toolCallId: 't', title: 'x', toolKind: 'other' } as const;
  log.take({ kind: 'thought', text: 'hm' });
  log.take({ kind: 'text', text: 'before' });
  log.take({ ...call, phase: 'started', status: 'running' });
  log.take({ ...call, phase: 'finished', status: 'completed', output: 'o\u0000' });
  log.take({ kind: 'text', text: 'after' });
  log.take({ ...call, toolCallId: 'u', phase: 'started', status: 'running' });
  log.close();
  log.finishTools('cancelled');
  assert.equal(text(), 'before\n\nafter');
  assert.equal(log.content, text());
  assert.deepEqual(
    events.map((event) => event.type),
    [
      'thought.delta',
      'message.delta',
      'tool.started',
      'tool.finished',
      'message.delta',
      'tool.started',
      'tool.finished',
    ],
  );
  assert.ok(!JSON.stringify(events).includes('\\u0000'));
  const last = events.at(-1);
  assert.equal(last?.type === 'tool.finished' && last.data.status, 'cancelled');
});
