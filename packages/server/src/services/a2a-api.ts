import type { ConversationEvent } from '../domain/events.ts';
import type { Principal, RunStatus } from '../domain/nouns.ts';
import type { PageQuery } from '../domain/paging.ts';

/** Where the updates of a task are sent. */
export interface PushConfig {
  /** `''` in a new one: that of the task. */
  id: string;
  url: string;
  /** The version of the protocol that its receiver reads. */
  version: '1.0' | '0.3';
  /** `token`: `''` when there is none. */
  secret: { token: string; authentication: { scheme: string; credentials: string } | null };
}

export interface TaskQuery extends PageQuery {
  conversationId: string | null;
  statuses: RunStatus[] | null;
  /** With `failed` among the statuses: only runs that were refused (true), or only others (false). */
  refused: boolean | null;
  /** With `awaiting_input`: only runs that wait to be allowed something (true), or only others (false). */
  authorization: boolean | null;
  since: Date | null;
}

/** What A2A has beside the runs, conversations and events that it is a view of. A task is a run, a context a conversation. */
export interface A2aService {
  /** The conversation that a context id names; one that is to begin (`SendInput.mayBegin`) when there is none. */
  resolveContext(p: Principal, agentId: string, contextId: string): Promise<string>;
  /**
   * What the context id named when it was looked for last here; null = look for it. Nothing is asked, so that the
   * conversation may be no more: who does not find it looks again by `resolveContext`.
   */
  knownContext(p: Principal, agentId: string, contextId: string): string | null;
  /** Null: no context of this agent is called so. */
  findContext(p: Principal, agentId: string, contextId: string): Promise<string | null>;
  /** The ids by which clients call conversations, of those that have one. Check before that they are the caller's. */
  contextIds(conversationIds: string[]): Promise<Map<string, string>>;
  /** The caller has named the task, so that it knows of it: the same message again is a new one. */
  forgetSend(p: Principal, runId: string): Promise<void>;
  /** Newest status first. */
  listTasks(
    p: Principal,
    agentId: string,
    query: TaskQuery,
  ): Promise<{
    rows: { runId: string; conversationId: string; statusAt: Date }[];
    total: number;
    nextCursor: string | null;
  }>;
  /** The events that make tasks of runs, without the pieces of texts. Check before that they are the caller's. */
  taskEvents(p: Principal, runIds: string[], withArtifacts: boolean): Promise<ConversationEvent[]>;
  /** `fromStart`: the updates of the past are sent too. Throws `invalid_request` for a target that is not reached. */
  putPushConfig(
    p: Principal,
    agentId: string,
    runId: string,
    config: PushConfig,
    fromStart: boolean,
  ): Promise<PushConfig>;
  pushConfigs(p: Principal, agentId: string, runId: string): Promise<PushConfig[]>;
  /** Also when there is none. */
  removePushConfig(p: Principal, agentId: string, runId: string, configId: string): Promise<void>;
  /** Throws `invalid_request`. */
  checkPushTarget(url: string): Promise<void>;
  /** Signs text (ES256): the parts of a JWS (RFC 7515); `header` is what the protected one holds beside `alg` and `kid`. */
  signCard(
    payload: string,
    header: Record<string, string>,
  ): Promise<{ protected: string; signature: string }>;
  /** JWKs (RFC 7517) by which signatures are verified. */
  publicKeys(): Promise<Record<string, unknown>[]>;
}
