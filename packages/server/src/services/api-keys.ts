import { requireEdit, requireOrgBound } from '../domain/access.ts';
import { newKeyValue } from '../domain/api-key-value.ts';
import { invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import type { Binding, Scope } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { readName } from '../domain/text.ts';
import type { AgentStore } from '../store/agents.ts';
import type { ApiKeyStore } from '../store/api-keys.ts';
import type { Database } from '../store/database.ts';
import type { ApiKeysService, MintedKey } from './api.ts';
import type { Auth } from './auth.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

export interface ApiKeysDependencies {
  db: Database;
  keys: ApiKeyStore;
  agents: AgentStore;
  auth: Pick<Auth, 'forget'>;
  cursors: Cursors;
}

export interface KeyInput {
  orgId: string;
  name: string;
  scope: Scope;
  binding: Binding;
  agentId: string | null;
  expiresAt?: Date | undefined;
}

/** Makes a key. Whether the caller may is for the caller of this function to have checked. */
export async function mintKey(keys: ApiKeyStore, input: KeyInput): Promise<MintedKey> {
  const name = readName('name', input.name);
  const expiresAt = input.expiresAt ?? null;
  if (expiresAt && !(expiresAt.getTime() > Date.now())) throw invalid('expiresAt', 'must be in the future.');
  const { value, hash, prefix } = newKeyValue();
  const { orgId, agentId, scope, binding } = input;
  const key = await keys.insert({
    id: newId(),
    orgId,
    agentId,
    name,
    prefix,
    hash,
    scope,
    binding,
    expiresAt,
  });
  return { key, value };
}

export function createApiKeys(deps: ApiKeysDependencies): ApiKeysService {
  const { db, keys, agents, auth, cursors } = deps;

  /** Revoked where the caller is answered, and a moment later on every other replica. */
  async function revokeOf(owner: { orgId: string } | { agentId: string }, keyId: string): Promise<void> {
    const hash = isId(keyId) ? await keys.revoke(owner, keyId) : null;
    if (hash === null) throw notFound();
    db.afterCommit(() => auth.forget([hash]));
  }

  /** A key for an agent that is being deleted must not outlive it, hence the lock. */
  const mintForLocked = (agentId: string, input: KeyInput): Promise<MintedKey> =>
    db.tx(async () => {
      if (!(await agents.lock(agentId))) throw notFound();
      return mintKey(keys, input);
    });

  return {
    async listForAgent(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      return pageById(cursors, `api-keys:${agentId}`, query, (at) => keys.listForAgent(agentId, at));
    },

    async mintForAgent(p, agentId, { name }) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      return mintForLocked(agentId, { orgId: p.orgId, name, scope: 'use', binding: 'agent-bound', agentId });
    },

    async revokeForAgent(p, agentId, keyId) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      await revokeOf({ agentId }, keyId);
    },

    async list(p, query) {
      requireEdit(p);
      requireOrgBound(p);
      return pageById(cursors, `api-keys:${p.orgId}`, query, (at) => keys.listForOrg(p.orgId, at));
    },

    async mint(p, { name, scope, binding, agentId, expiresAt }) {
      requireEdit(p);
      requireOrgBound(p);
      const key = { orgId: p.orgId, name, scope, binding, expiresAt };
      if (binding === 'org-bound') {
        if (agentId !== undefined) throw invalid('agentId', 'must be left out for an org-bound key.');
        return mintKey(keys, { ...key, agentId: null });
      }
      if (agentId === undefined) throw invalid('agentId', 'is needed for an agent-bound key.');
      await visibleAgent(agents, p, agentId);
      return mintForLocked(agentId, { ...key, agentId });
    },

    async revoke(p, keyId) {
      requireEdit(p);
      requireOrgBound(p);
      await revokeOf({ orgId: p.orgId }, keyId);
    },
  };
}
