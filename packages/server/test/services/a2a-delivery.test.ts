import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { limits } from '../../src/domain/limits.ts';
import { createA2aDelivery, type DeliveryDependencies } from '../../src/services/a2a-delivery.ts';
import { mintKey } from '../../src/services/api-keys.ts';
import { createA2aPushStore } from '../../src/store/a2a-push.ts';
import { createAgentStore } from '../../src/store/agents.ts';
import { createApiKeyStore } from '../../src/store/api-keys.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { silentLog } from '../support/log.ts';
import { runWorld, send, type Replica, type RunWorld } from '../support/run-world.ts';
import { until } from '../support/until.ts';

let world: RunWorld;
let replica: Replica;
before(async () => {
  world = await runWorld();
  replica = await world.replica();
});
after(() => world.close());

async function newAgent(orgId: string): Promise<string> {
  const id = newId();
  const about = { name: 'B', description: '', model: 'demo/guide', externalGitUrl: null };
  await createAgentStore(world.db).insert({ ...about, id, orgId });
  return id;
}

/** So many configurations of a task of the agent, older by `secondsAgo`, whose events are yet to be sent. */
async function configured(orgId: string, agentId: string, count: number, secondsAgo: number): Promise<void> {
  const p = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null } as const;
  const { runId, conversationId } = await replica.runs.send(p, send('hello', { agentId }));
  const { key } = await mintKey(createApiKeyStore(world.db), { ...p, name: 'k' });
  await world.db.sql`
    insert into a2a_push_configs (id, org_id, agent_id, conversation_id, run_id, key_id, config_id, url, version,
      sealed_value, wrapped_key, kek_id, delivered_seq, due_at)
    select uuid_v7(), ${orgId}, ${agentId}, ${conversationId}, ${runId}, ${key.id}, n::text,
      ${`https://example.com/${agentId}`}, '1.0', '', '', 'k', 0, now() - make_interval(secs => ${secondsAgo})
    from generate_series(1, ${count}) n`;
}

test('pushes that nobody answers leave room for every other agent, and for every other organisation', async () => {
  const asked: string[] = [];
  const delivery = createA2aDelivery({
    pushes: createA2aPushStore(world.db),
    tasks: { events: async () => [], contextIds: async () => new Map() },
    render: async () => [{ seq: 1, body: '{}', contentType: 'application/json' }],
    box: { open: () => Buffer.from('{"token":""}') },
    targets: { resolve: async (url: string) => url },
    nodeId: 'one',
    // Takes the request, and says nothing until it is given up.
    post: (url: unknown, { signal }: { signal: AbortSignal }) => {
      asked.push(String(url).split('/').at(-1)!);
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    },
    log: silentLog,
  } as unknown as DeliveryDependencies);
  const { ofAgent, ofOrg } = limits.pushRequests;
  const { orgId } = world.owner;
  const of = (agentId: string) => asked.filter((one) => one === agentId).length;
  try {
    const loud = await newAgent(orgId);
    await configured(orgId, loud, 200, 3600);
    await delivery.runDue();
    await until('the first are asked', () => of(loud) === ofAgent);
    const neighbour = await newAgent(orgId);
    await configured(orgId, neighbour, 1, 0);
    await delivery.runDue();
    await until('the neighbour is asked', () => of(neighbour) === 1);
    for (let n = 0; n * ofAgent <= ofOrg; n += 1) await configured(orgId, await newAgent(orgId), 20, 3600);
    await delivery.runDue();
    await until('the organisation has its share', () => asked.length === ofOrg);
    const theirs = newId();
    await createOrgStore(world.db).insert({ id: theirs, name: 'Theirs' });
    const other = await newAgent(theirs);
    await configured(theirs, other, 1, 0);
    await delivery.runDue();
    await until('the other organisation is asked', () => of(other) === 1);
    assert.equal(of(loud), ofAgent);
    assert.equal(asked.length, ofOrg + 1);
  } finally {
    await delivery.stop();
  }
});
