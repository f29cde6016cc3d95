import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { createOutcomes } from '../../src/services/outcomes.ts';

test('a run that ended so long before it is known to be accepted that its end is forgotten is looked for', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const outcomes = createOutcomes();
  const place = { conversationId: newId(), orgId: newId(), agentId: newId() };
  const [told, late] = [newId(), newId()];
  for (const id of [told, late]) outcomes.expect(id, place);
  outcomes.settle({ run: { id: late } as never, message: null });
  t.mock.timers.tick(60_000);
  assert.equal(outcomes.find(late), null);
  for (const id of [told, late]) outcomes.expect(id, { ...place, firstSeq: 1 });
  assert.equal(outcomes.find(told)?.isStale, false);
  assert.equal(outcomes.find(late)?.isStale, true);
});
