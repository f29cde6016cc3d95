import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isId, newId } from '../../src/domain/ids.ts';

test('ids are in the order in which they were made, and hold the time, the version and random bits', () => {
  const beforeMs = Date.now();
  const ids = Array.from({ length: 20_000 }, newId);
  const afterMs = Date.now();
  assert.deepEqual(ids, ids.toSorted());
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) {
    assert.ok(isId(id), id);
    assert.match(id, /^.{8}-.{4}-7.{3}-[89ab].{3}-/);
    const ms = Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
    // More than 4096 of a millisecond take the next one.
    assert.ok(ms >= beforeMs && ms <= afterMs + 1_000, `${id} is of ${ms}, not of ${beforeMs} to ${afterMs}`);
  }
  // Each of the digits that are random has each of its values.
  const random = ids.map((id) => id.slice(19).replace('-', ''));
  for (let at = 0; at < 16; at += 1) {
    assert.equal(new Set(random.map((digits) => digits[at])).size, at === 0 ? 4 : 16, `digit ${at}`);
  }
});
