import { canSeeAgent } from '../domain/access.ts';
import { notFound } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import type { Conversation, Principal, Run } from '../domain/nouns.ts';
import { findConversation } from '../store/conversations.ts';
import type { Database } from '../store/database.ts';
import { findRun } from '../store/runs.ts';

function seen<T extends { agentId: string; orgId: string }>(p: Principal, found: T | null): T {
  if (!found || !canSeeAgent(p, { id: found.agentId, orgId: found.orgId })) throw notFound();
  return found;
}

/** The conversation, when its agent is the caller's to see; else `not_found`, whatever the reason. */
export async function visibleConversation(db: Database, p: Principal, id: string): Promise<Conversation> {
  return seen(p, isId(id) ? await findConversation(db, id) : null);
}

/** The run, when its agent is the caller's to see; else `not_found`, whatever the reason. */
export async function visibleRun(db: Database, p: Principal, id: string): Promise<Run> {
  return seen(p, isId(id) ? await findRun(db, id) : null);
}
