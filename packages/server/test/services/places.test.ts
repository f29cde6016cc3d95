import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { Agent, Principal } from '../../src/domain/nouns.ts';
import { createAgentWeb, type AgentWebDependencies } from '../../src/services/agent-web.ts';
import { Places } from '../../src/services/places.ts';
import { createTerminals, type TerminalsDependencies } from '../../src/services/terminals.ts';

const most = { ofAgent: 2, ofAll: 3 };
const orgId = newId();
const owner: Principal = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null };
const agents = { get: async (id: string) => ({ id, orgId }) as Agent };
const openFollows = { add: () => () => undefined };

/** Everything runs until it is told to end. */
const control = {
  async exec() {
    const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
    return { ...streams, exited: new Promise(() => {}), resize: () => undefined, kill: () => undefined };
  },
  connect: async () => new PassThrough(),
};
const host = { control: async () => control };

const terminals = createTerminals({
  ...{ agents, host, openFollows, most, graceMs: 60_000 },
} as unknown as TerminalsDependencies);
const web = createAgentWeb({
  ...{ agents, host, openFollows, most },
  deployments: { activeOf: async () => ({ manifest: { web: { port: 80, command: null, public: false } } }) },
} as unknown as AgentWebDependencies);

const takers: Record<string, (agentId: string) => Promise<unknown>> = {
  terminals: (agentId) => terminals.open(owner, agentId, { columns: 80, rows: 24, term: 'xterm' }),
  'connections to a web server': (agentId) => web.connect(owner, agentId),
};

for (const [what, take] of Object.entries(takers))
  test(`a refusal for too many ${what} tells the limit that was met: that of the agent, or of all`, async () => {
    const [one, other] = [newId(), newId()];
    await take(one);
    await take(one);
    await assert.rejects(take(one), { message: /^At most 2 .* at once for an agent\.$/ });
    await take(other);
    await assert.rejects(take(other), { message: /^At most 3 .* at once for all agents together/ });
    await assert.rejects(take(newId()), { message: /^At most 3 .* for all agents together/ });
  });

test('a place that is given back twice is one place', () => {
  const places = new Places('things are open', most);
  const [first] = [places.take('a'), places.take('a'), places.take('b')];
  first!();
  first!();
  assert.equal(places.refusal('a'), null);
  places.take('c');
  assert.match(places.refusal('a') ?? '', /At most 3 things are open at once for all/);
  assert.equal(places.isFullOf('a'), false);
});

test('an organisation does not hold all places, however many agents it has', () => {
  const places = new Places('things are open', { ofAgent: 2, ofOrg: 3, ofAll: 4 });
  const taken = ['a', 'b', 'c'].map((agent) => places.take(agent, 'ours'));
  assert.match(
    places.refusal('d', 'ours') ?? '',
    /^At most 3 things are open at once for all agents of an org/,
  );
  assert.equal(places.refusal('z', 'theirs'), null);
  taken[0]!();
  assert.equal(places.refusal('d', 'ours'), null);
});
