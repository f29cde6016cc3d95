import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { createKnownContexts } from '../../src/services/known-contexts.ts';

test('contexts are known by agent, and of too many the one that was looked for longest ago is forgotten', () => {
  const known = createKnownContexts(2);
  known.put('agent', 'a', '1');
  known.put('agent', 'b', '2');
  known.put('agent', 'a', '3');
  known.put('other', 'a', '4');
  deepEqual(
    [known.get('agent', 'a'), known.get('agent', 'b'), known.get('other', 'a'), known.get('other', 'b')],
    ['3', null, '4', null],
  );
});
