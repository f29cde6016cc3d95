import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gate } from '../../src/domain/gate.ts';
import { until } from '../support/until.ts';

function gate(burst: number, perSecond: number) {
  const said: boolean[] = [];
  return { said, door: new Gate({ burst, perSecond }, (isShut) => said.push(isShut)) };
}

test('a gate stays open for what comes within its pace', () => {
  const { said, door } = gate(3, 10);
  for (let nowMs = 1_000; nowMs < 11_000; nowMs += 100) door.came(nowMs);
  assert.deepEqual(said, []);
});

test('a gate shuts after its burst, counts what still comes, and opens again by itself', async () => {
  const { said, door } = gate(3, 50);
  const startMs = performance.now();
  for (let i = 0; i < 3; i += 1) door.came(startMs);
  assert.equal(door.isShut, false);
  for (let i = 0; i < 12; i += 1) door.came(startMs);
  assert.deepEqual(said, [true]);
  await until('it is open', () => !door.isShut);
  assert.deepEqual(said, [true, false]);
  // Twelve too many, twenty milliseconds each.
  assert.ok(performance.now() - startMs >= 200);
});

test('what cost more than others counts as more, and alone shuts a gate for a bounded time', async () => {
  const { said, door } = gate(20, 100);
  const startMs = performance.now();
  door.charge(20, 100, startMs);
  assert.deepEqual(said, []);
  // Without a bound it would be shut for minutes.
  for (let i = 0; i < 1_000; i += 1) door.charge(20, 100, startMs);
  assert.deepEqual(said, [true]);
  await until('it is open', () => !door.isShut);
  assert.ok(performance.now() - startMs >= 200);
});

test('a gate whose door has gone is no failure', () => {
  const door = new Gate({ burst: 1, perSecond: 1 }, () => {
    throw new Error('no such file');
  });
  door.came();
  door.came();
  assert.equal(door.isShut, true);
  door.close();
  assert.equal(door.isShut, false);
});
