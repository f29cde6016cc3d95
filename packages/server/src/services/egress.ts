import { requireEdit } from '../domain/access.ts';
import { egressRemedy, type EgressPolicy } from '../domain/egress-policy.ts';
import { egressPresets } from '../domain/egress-presets.ts';
import { parseDenyRule, parseEgressRule } from '../domain/egress-rules.ts';
import { DomainError, invalid, notFound, type ErrorDetail } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Cursors } from '../domain/paging.ts';
import type { Principal } from '../domain/nouns.ts';
import type { ReadEgressPolicy } from '../domain/ports/egress.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import {
  egressPolicyOf,
  putEgressPolicy,
  refusalsOf,
  removeEgressPolicy,
  trafficOf,
} from '../store/egress.ts';
import type { EgressService, EgressView } from './api.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

export interface EgressDependencies {
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  /** Of agents whose owner has set nothing. */
  defaultPolicy: EgressPolicy;
  /** Makes the policy hold here and tells the other replicas; called after the commit. */
  changed: (agentId: string) => Promise<void>;
  /** Whether sandboxes here can lead programs that know no proxy to it. */
  transparentPossible: () => Promise<boolean>;
  now?: () => Date;
}

const trafficDays = 30;
const trafficHosts = 100;
const dayMs = 86_400_000;

export function createEgress(deps: EgressDependencies): EgressService & { policyOf: ReadEgressPolicy } {
  const { db, agents, cursors, defaultPolicy, now = () => new Date() } = deps;

  async function view(agentId: string): Promise<EgressView> {
    const stored = await egressPolicyOf(db, agentId);
    const { updatedAt, ...policy } = stored ?? { ...defaultPolicy, updatedAt: null };
    return {
      ...policy,
      isDefault: stored === null,
      updatedAt,
      transparentPossible: await deps.transparentPossible(),
    };
  }

  async function change(p: Principal, agentId: string, policy: EgressPolicy | null): Promise<void> {
    await visibleAgent(agents, p, agentId);
    requireEdit(p);
    if (policy) checkPolicy(policy);
    await db.tx(async () => {
      if (!(await agents.lock(agentId))) throw notFound();
      const before = (await egressPolicyOf(db, agentId)) ?? defaultPolicy;
      if (policy) await putEgressPolicy(db, agentId, policy);
      else await removeEgressPolicy(db, agentId);
      // All but this holds without another sandbox.
      if ((policy ?? defaultPolicy).transparent !== before.transparent) await agents.bumpGeneration(agentId);
    });
    await deps.changed(agentId);
  }

  return {
    async get(p, agentId) {
      await visibleAgent(agents, p, agentId);
      return view(agentId);
    },
    async put(p, agentId, policy) {
      await change(p, agentId, policy);
      return view(agentId);
    },
    remove: (p, agentId) => change(p, agentId, null),
    async refusals(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      const page = await pageById(cursors, `egress-refusals:${agentId}`, query, (at) =>
        refusalsOf(db, agentId, at),
      );
      const items = page.items.map((row) => ({ ...row, remedy: egressRemedy(agentId, row.reason, row) }));
      return { items, nextCursor: page.nextCursor };
    },
    async traffic(p, agentId) {
      await visibleAgent(agents, p, agentId);
      const since = new Date(now().getTime() - (trafficDays - 1) * dayMs).toISOString().slice(0, 10);
      return { since, hosts: await trafficOf(db, agentId, since, trafficHosts) };
    },
    policyOf: async (agentId) => (await egressPolicyOf(db, agentId)) ?? defaultPolicy,
  };
}

/** Throws `invalid_request` with every rule that is none. */
function checkPolicy(policy: EgressPolicy): void {
  const details: ErrorDetail[] = [];
  for (const [list, parse] of [
    ['allow', parseEgressRule],
    ['deny', parseDenyRule],
  ] as const) {
    if (policy[list].length > limits.egressRules)
      throw invalid(list, `has more than ${limits.egressRules} rules.`);
    for (const [index, text] of policy[list].entries()) {
      if (parse(text) !== null) continue;
      const message =
        'must be a rule such as registry.example, registry.example:8443, *.example.org:443, 203.0.113.7:443, ' +
        '[2001:db8::]/32 or db.example:5432/tcp; no URL.';
      details.push({ path: `${list}.${index}`, message });
    }
  }
  for (const [index, name] of policy.presets.entries()) {
    if (Object.hasOwn(egressPresets, name)) continue;
    const message = `must be one of ${Object.keys(egressPresets).join(', ')}.`;
    details.push({ path: `presets.${index}`, message });
  }
  if (details.length === 0) return;
  throw new DomainError('invalid_request', `${details[0]!.path}: ${details[0]!.message}`, { details });
}
