import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import { isTooDeep } from '../../src/edges/http/text.ts';

test('the depth of JSON is counted as a parser would, and texts count for nothing', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  assert.equal(isTooDeep(nested(limits.jsonDepth)), false);
  assert.equal(isTooDeep(nested(limits.jsonDepth + 1)), true);
  assert.equal(isTooDeep(`{"a":${nested(limits.jsonDepth)}}`), true);
  assert.equal(isTooDeep(JSON.stringify({ a: '['.repeat(1_000), b: '\\"[{', '{{[': ']' })), false);
  assert.equal(isTooDeep(`[${'[1],'.repeat(1_000)}1]`), false);
  assert.equal(isTooDeep('"'.padEnd(1_000, '[')), false);
  assert.equal(isTooDeep(`{"a":"\\\\",${'"b":['.repeat(200)}`, 128), true);
});
