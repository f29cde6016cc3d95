import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenFollows } from '../../src/services/open-follows.ts';
import type { Database } from '../../src/store/database.ts';
import { silentLog } from '../support/log.ts';
import { until } from '../support/until.ts';

test('the database is asked about streams as long as one is open, and not after the last has ended', async () => {
  let asked = 0;
  let plans = 0;
  const db = {
    sql: async () => ((asked += 1), []),
    outside: <T>(work: () => T): T => ((plans += 1), work()),
  } as unknown as Database;
  const follows = createOpenFollows(db, silentLog);
  const follow = { keyId: '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be842', end() {} };

  const close = follows.add(follow);
  await until('it is asked about', () => asked > 0);
  close();
  const before = asked;
  // The next look is over once another stream has one planned anew.
  await until('nothing more is planned', () => {
    follows.add(follow)();
    return plans === 2;
  });
  assert.equal(asked, before);
});
