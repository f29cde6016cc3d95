import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cases, hasCase, reasonWithout } from './fixtures/absent.ts';
import { fixtures } from './fixtures/all.ts';

for (const fixture of fixtures) {
  test(`${fixture.title}: every case has a request of it, or a reason why there is none`, () => {
    for (const name of cases)
      assert.ok(
        hasCase(fixture, name) || reasonWithout(fixture, name),
        `${fixture.title} has no case "${name}"`,
      );
  });
}
