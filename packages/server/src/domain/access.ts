import { DomainError, notFound } from './errors.ts';
import type { Principal } from './nouns.ts';

/**
 * What a key may do (API contract, section 2). Visibility comes first: what the caller cannot see is not found, and
 * only what is visible can be forbidden.
 */
export function canSeeAgent(p: Principal, agent: { id: string; orgId: string }): boolean {
  if (agent.orgId !== p.orgId) return false;
  return p.binding === 'org-bound' || p.agentId === agent.id;
}

export function requireVisible<T extends { id: string; orgId: string }>(p: Principal, agent: T | null): T {
  if (!agent || !canSeeAgent(p, agent)) throw notFound();
  return agent;
}

export function requireEdit(p: Principal): void {
  if (p.scope === 'edit') return;
  throw new DomainError(
    'scope_insufficient',
    'This key has the scope "use"; the operation needs a key with the scope "edit".',
  );
}

export function requireOrgBound(p: Principal): void {
  if (p.binding === 'org-bound') return;
  throw new DomainError(
    'binding_insufficient',
    'This key is bound to one agent; the operation needs an org-bound key.',
  );
}
