import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Agent, Principal } from '../../src/domain/nouns.ts';
import { resourceWorld } from '../support/resources.ts';
import type { World } from '../support/resources.ts';

const page = { limit: 50, cursor: null };

let world: World;
before(async () => {
  world = await resourceWorld();
});
after(() => world.close());

type Verdict = 'ok' | 'not_found' | 'scope_insufficient' | 'binding_insufficient';

/** What it came to, as a caller could see it; an error that is no answer fails the test. */
async function verdictOf(work: () => Promise<unknown>): Promise<{ verdict: Verdict; text: string }> {
  try {
    await work();
    return { verdict: 'ok', text: '' };
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    const text = JSON.stringify([error.code, error.message, error.details ?? null]);
    return { verdict: error.code as Verdict, text };
  }
}

/** By scope and binding: use agent-bound, edit agent-bound, use org-bound, edit org-bound. */
type Row = [Verdict, Verdict, Verdict, Verdict];

interface Case {
  name: string;
  run: (p: Principal, agent: Agent) => Promise<unknown>;
  /** Instead of `run` on an agent that cannot be seen, where `run` first makes something on it. */
  bare?: (p: Principal, agent: Agent) => Promise<unknown>;
  expected: Row;
}

const readers: Row = ['ok', 'ok', 'ok', 'ok'];
const editors: Row = ['scope_insufficient', 'ok', 'scope_insufficient', 'ok'];
const orgEditors: Row = ['scope_insufficient', 'binding_insufficient', 'scope_insufficient', 'ok'];

const onAgent: Case[] = [
  { name: 'get an agent', run: (p, a) => world.agents.get(p, a.id), expected: readers },
  {
    name: 'change an agent',
    run: (p, a) => world.agents.update(p, a.id, { name: 'Other' }),
    expected: editors,
  },
  { name: 'list keys', run: (p, a) => world.apiKeys.listForAgent(p, a.id, page), expected: editors },
  {
    name: 'mint a key',
    run: (p, a) => world.apiKeys.mintForAgent(p, a.id, { name: 'k' }),
    expected: editors,
  },
  {
    name: 'revoke a key',
    run: (p, a) => revokeNew(p, a),
    bare: (p, a) => world.apiKeys.revokeForAgent(p, a.id, p.keyId),
    expected: editors,
  },
  { name: 'list secrets', run: (p, a) => world.secrets.list(p, a.id, page), expected: editors },
  { name: 'set a secret', run: (p, a) => world.secrets.put(p, a.id, 'K', { value: 'v' }), expected: editors },
  {
    name: 'delete a secret',
    run: (p, a) => removeNewSecret(p, a),
    bare: (p, a) => world.secrets.remove(p, a.id, 'K'),
    expected: editors,
  },
  { name: 'list deployments', run: (p, a) => world.deployments.list(p, a.id, page), expected: readers },
  {
    name: 'get a deployment',
    run: (p, a) => world.deployments.get(p, a.id, a.deploymentId!),
    expected: readers,
  },
  { name: 'deploy', run: (p, a) => world.deployments.create(p, a.id, {}), expected: editors },
  {
    name: 'activate',
    run: (p, a) => world.deployments.activate(p, a.id, a.deploymentId!),
    expected: editors,
  },
  { name: 'delete an agent', run: (p, a) => world.agents.remove(p, a.id), expected: orgEditors },
];

const onOrg: Case[] = [
  { name: 'list agents', run: (p) => world.agents.list(p, page), expected: readers },
  { name: 'create an agent', run: (p) => world.agents.create(p, { name: 'New' }), expected: orgEditors },
  { name: 'list all keys', run: (p) => world.apiKeys.list(p, page), expected: orgEditors },
  {
    name: 'mint an org-bound key',
    run: (p) => world.apiKeys.mint(p, { name: 'k', scope: 'use', binding: 'org-bound' }),
    expected: orgEditors,
  },
  {
    name: 'mint an edit key of an agent',
    run: (p, a) => world.apiKeys.mint(p, { name: 'k', scope: 'edit', binding: 'agent-bound', agentId: a.id }),
    expected: orgEditors,
  },
  {
    name: 'revoke any key',
    run: async (p) => world.apiKeys.revoke(p, (await world.caller('use', 'org-bound')).keyId),
    expected: orgEditors,
  },
];

/** What is needed is made by others, so that only the rights of `p` decide. */
async function revokeNew(p: Principal, agent: Agent): Promise<void> {
  const { keyId } = await world.caller('use', 'agent-bound', agent);
  await world.apiKeys.revokeForAgent(p, agent.id, keyId);
}

async function removeNewSecret(p: Principal, agent: Agent): Promise<void> {
  await world.secrets.put(world.owner, agent.id, 'D', { value: 'v' });
  await world.secrets.remove(p, agent.id, 'D');
}

const rights = [
  ['use', 'agent-bound'],
  ['edit', 'agent-bound'],
  ['use', 'org-bound'],
  ['edit', 'org-bound'],
] as const;

for (const { name, run, expected } of [...onAgent, ...onOrg]) {
  test(`who may ${name} follows from scope and binding`, async () => {
    for (const [index, [scope, binding]] of rights.entries()) {
      const agent = await world.agents.create(world.owner, { name: 'Mine' });
      const p = await world.caller(scope, binding, agent);
      const { verdict } = await verdictOf(() => run(p, agent));
      assert.equal(verdict, expected[index], `${scope} ${binding}`);
    }
  });
}

test('a foreign, an unbound, a deleted, a missing and a malformed agent look the same in every operation', async () => {
  const bound = await world.agents.create(world.owner, { name: 'Bound' });
  const other = await world.agents.create(world.owner, { name: 'Other' });
  const deleted = await world.agents.create(world.owner, { name: 'Deleted' });
  await world.agents.remove(world.owner, deleted.id);
  for (const { name, run, bare = run } of onAgent) {
    const texts = new Set<string>();
    const look = async (p: Principal, agent: Agent) => {
      const { verdict, text } = await verdictOf(() => bare(p, agent));
      assert.equal(verdict, 'not_found', name);
      texts.add(text);
    };
    for (const [scope, binding] of rights) {
      const p = await world.caller(scope, binding, bound);
      await look(p, world.foreign.agent);
      await look(p, deleted);
      await look(p, { ...bound, id: newId() });
      await look(p, { ...bound, id: 'no-id' });
      await look(p, { ...bound, id: bound.id.toUpperCase() });
      if (binding === 'agent-bound') await look(p, other);
    }
    assert.equal(texts.size, 1, name);
  }
});

test('what is refused has no effect', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Untouched' });
  const use = await world.caller('use', 'agent-bound', agent);
  const keysOf = async () => (await world.apiKeys.listForAgent(world.owner, agent.id, page)).items.length;
  const keysBefore = await keysOf();
  await verdictOf(() => world.agents.update(use, agent.id, { name: 'Touched' }));
  await verdictOf(() => world.agents.remove(use, agent.id));
  await verdictOf(() => world.apiKeys.mintForAgent(use, agent.id, { name: 'k' }));
  await verdictOf(() => world.apiKeys.revokeForAgent(use, agent.id, use.keyId));
  await verdictOf(() => world.secrets.put(use, agent.id, 'K', { value: 'v' }));
  await verdictOf(() => world.deployments.create(use, agent.id, {}));
  assert.equal((await world.agents.get(world.owner, agent.id)).name, 'Untouched');
  assert.equal(await keysOf(), keysBefore);
  assert.equal((await world.secrets.list(world.owner, agent.id, page)).items.length, 0);
  assert.equal((await world.deployments.list(world.owner, agent.id, page)).items.length, 1);
});

test('an agent-bound key sees one agent in the list of agents', async () => {
  const agent = await world.agents.create(world.owner, { name: 'Alone' });
  const { items, nextCursor } = await world.agents.list(
    await world.caller('use', 'agent-bound', agent),
    page,
  );
  assert.deepEqual(
    items.map((item) => item.id),
    [agent.id],
  );
  assert.equal(nextCursor, null);
});
