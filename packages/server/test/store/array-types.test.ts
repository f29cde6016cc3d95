import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { testDatabase } from '../support/database.ts';

test('arrays go to the database and come back as they were', async (t) => {
  const { db, close } = await testDatabase({ pool: 1 });
  t.after(close);
  const texts = [
    '',
    'a,b',
    '{}',
    '"',
    '\\',
    '\\"',
    "'",
    'NULL',
    'null',
    ' x ',
    'line\nbreak',
    '😀',
    '\u2028\u007fé',
    JSON.stringify({ a: '\\"\n😀' }),
    null,
  ];
  const ids = [newId(), newId()];
  const at = new Date();
  const [row] = await db.sql`
    select ${texts}::text[] as texts, ${ids}::uuid[] as ids, ${[1, -2, null]}::integer[] as integers,
      ${['9007199254740993']}::bigint[] as bigints, ${[at.toISOString()]}::text[]::timestamptz[] as times,
      ${[]}::text[] as nothing`;
  assert.deepEqual(
    { ...row },
    { texts, ids, integers: [1, -2, null], bigints: [9007199254740993n], times: [at], nothing: [] },
  );
});
