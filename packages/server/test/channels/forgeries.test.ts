import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { limits } from '../../src/domain/limits.ts';
import { createForgeryBudget } from '../../src/services/forgery-budget.ts';
import { providerStandIn } from '../support/provider-stand-in.ts';
import { signed } from './fixtures/fixture.ts';
import { slackSecret } from './fixtures/slack.ts';
import { teamsFixture } from './fixtures/tokens.ts';
import { channelWorld, mention, slackRequest } from './world.ts';

let world: Awaited<ReturnType<typeof channelWorld>>;
let provider: Awaited<ReturnType<typeof providerStandIn>>;
before(async () => {
  world = await channelWorld();
  provider = await providerStandIn(() => ({ status: 500, body: {} }));
});
after(async () => {
  await world?.close();
  await provider?.close();
});
const refused = (code: string) => (error: unknown) => error instanceof DomainError && error.code === code;
const slackChannel = async () =>
  (
    await world.service.create(world.owner, world.agentId, {
      kind: 'slack',
      credentials: { signingSecret: slackSecret, botToken: 'xoxb-1' },
    })
  ).channel.id;

test('a budget of forgeries is one of a minute, and of one channel', () => {
  let nowMs = 1_000;
  const budget = createForgeryBudget(() => nowMs);
  for (let count = 1; count < limits.forgeriesPerMinute; count += 1) budget.spend('one');
  assert.equal(budget.isSpent('one'), false);
  budget.spend('one');
  assert.deepEqual([budget.isSpent('one'), budget.isSpent('other')], [true, false]);
  nowMs += 60_000;
  assert.equal(budget.isSpent('one'), false);
});

test('whoever sends forgeries makes large bodies wait, on that channel alone, and shuts out no genuine delivery', async () => {
  const [attacked, other] = [await slackChannel(), await slackChannel()];
  const forge = () => world.inbox.receive('slack', attacked, slackRequest(mention(1), 'wrong'));
  for (let count = 0; count < limits.forgeriesPerMinute; count += 1) {
    assert.equal((await world.inbox.admit('slack', attacked)).hurriedBytes, undefined);
    await assert.rejects(forge(), refused('signature_invalid'));
  }
  assert.equal((await world.inbox.admit('slack', attacked)).hurriedBytes, limits.forgedBodyBytes);
  const { hurriedBytes, orgId } = await world.inbox.admit('slack', other);
  assert.deepEqual([hurriedBytes, orgId], [undefined, world.owner.orgId]);
  await assert.rejects(forge(), refused('signature_invalid'));
  const answer = await world.inbox.receive('slack', attacked, slackRequest(mention(2)));
  assert.equal(answer.status, 200);
});

test('strangers make the service fetch so many documents that prove a sender, and no more', async () => {
  const { channel } = await world.service.create(world.owner, world.agentId, {
    kind: 'teams',
    settings: teamsFixture.settings,
    credentials: teamsFixture.credentials,
    apiBaseUrl: provider.url,
  });
  const request = signed(teamsFixture, teamsFixture.message({}), Date.now());
  const tries = limits.forgeriesPerMinute + 5;
  for (let count = 0; count < tries; count += 1) {
    await assert.rejects(world.inbox.receive('teams', channel.id, request), refused('unavailable'));
  }
  assert.equal(provider.calls.length, limits.forgeriesPerMinute);
});
