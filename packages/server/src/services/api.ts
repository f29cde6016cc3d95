import type { Duplex } from 'node:stream';
import type { Budget, BudgetTerms } from '../domain/budget.ts';
import type { EgressPolicy, EgressReason } from '../domain/egress-policy.ts';
import type { ConversationEvent } from '../domain/events.ts';
import type { ManifestWeb } from '../domain/manifest.ts';
import type {
  Agent,
  ApiKey,
  Binding,
  Conversation,
  Deployment,
  Message,
  Principal,
  Run,
  Scope,
  SecretName,
} from '../domain/nouns.ts';
import type { Page, PageQuery } from '../domain/paging.ts';
import type { Artifact, MessagePart } from '../domain/parts.ts';
import type { AnswerMessage, Question } from '../domain/questions.ts';
import type { A2aService } from './a2a-api.ts';
import type {
  SandboxesService,
  SandboxExecService,
  SandboxFilesService,
  SnapshotsService,
  TerminalsService,
} from './sandbox-api.ts';

export type * from './sandbox-api.ts';

import type { ChannelsService } from './channels-api.ts';
import type { SchedulesService } from './schedules-api.ts';
import type { WebhookEndpointsService } from './webhook-endpoints-api.ts';
import type { InboundEventsService } from './inbound-events.ts';

/** Everything that an edge may ask for. Each operation checks the caller first and throws DomainError. */
export interface Services {
  auth: AuthService;
  agents: AgentsService;
  apiKeys: ApiKeysService;
  secrets: SecretsService;
  deployments: DeploymentsService;
  budgets: BudgetsService;
  egress: EgressService;
  channels: ChannelsService;
  inboundEvents: InboundEventsService;
  schedules: SchedulesService;
  webhookEndpoints: WebhookEndpointsService;
  sandboxes: SandboxesService;
  sandboxFiles: SandboxFilesService;
  sandboxExec: SandboxExecService;
  terminals: TerminalsService;
  snapshots: SnapshotsService;
  conversations: ConversationsService;
  forks: ForksService;
  runs: RunsService;
  events: EventsService;
  rateLimit: RateLimitService;
  idempotency: IdempotencyService;
  acpSessions: AcpSessionsService;
  a2a: A2aService;
  agentWeb: AgentWebService;
}

export interface Caller extends Principal {
  /** Requests per window; the installation's default unless the key has its own. */
  rateLimit: { quota: number; windowSeconds: number };
}

export interface AuthService {
  /** `key_missing` for null or an empty text, else `key_invalid` for whatever is not an active key. */
  authenticate(value: string | null): Promise<Caller>;
  /** The same by the hash of a key and without a wait: null when it is not known to be active right now, whatever the reason. */
  known(hash: string): Caller | null;
}

export interface AgentsService {
  list(p: Principal, query: PageQuery): Promise<Page<Agent>>;
  get(p: Principal, id: string): Promise<Agent>;
  /** What `get` would give, when it is known without a wait; else null. The same object for as long as nothing changed. */
  known(p: Principal, id: string): Agent | null;
  /** Whoever asks: for what the host of an agent tells everybody. Null: there is none of this id. */
  find(id: string): Promise<Agent | null>;
  create(
    p: Principal,
    input: { name: string; description?: string; model?: string; gitUrl?: string },
  ): Promise<Agent>;
  update(
    p: Principal,
    id: string,
    patch: {
      name?: string;
      description?: string;
      model?: string;
      gitUrl?: string;
      allowedOrigins?: string[];
    },
  ): Promise<Agent>;
  remove(p: Principal, id: string): Promise<void>;
}

export interface MintedKey {
  key: ApiKey;
  /** Told once. */
  value: string;
}

/** The web servers that agents run behind their own addresses. */
export interface AgentWebService {
  /** What the active deployment's `agent.json` says of it; null: the agent has none. Whoever asks. */
  of(agentId: string): Promise<ManifestWeb | null>;
  /**
   * A connection of its own to the server; the sandbox is started or thawed when needed, and kept while the connection is
   * open. `p` null: somebody without a key, who gets to public servers only. It ends with the key. Throws `not_found`;
   * `bad_gateway` when nothing answers there; `unavailable` when the sandbox cannot be had or there are too many.
   */
  connect(p: Principal | null, agentId: string): Promise<Duplex>;
}

export interface ApiKeysService {
  listForAgent(p: Principal, agentId: string, query: PageQuery): Promise<Page<ApiKey>>;
  mintForAgent(p: Principal, agentId: string, input: { name: string }): Promise<MintedKey>;
  revokeForAgent(p: Principal, agentId: string, keyId: string): Promise<void>;
  list(p: Principal, query: PageQuery): Promise<Page<ApiKey>>;
  mint(
    p: Principal,
    input: { name: string; scope: Scope; binding: Binding; agentId?: string; expiresAt?: Date },
  ): Promise<MintedKey>;
  revoke(p: Principal, keyId: string): Promise<void>;
}

export interface SecretsService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<SecretName>>;
  put(p: Principal, agentId: string, key: string, input: { value: string; hosts?: string[] }): Promise<void>;
  remove(p: Principal, agentId: string, key: string): Promise<void>;
}

export interface DeploymentsService {
  list(p: Principal, agentId: string, query: PageQuery): Promise<Page<Deployment>>;
  get(p: Principal, agentId: string, deploymentId: string): Promise<Deployment>;
  /** Fetches an external repository first. Answers when the deployment is ready or failed. */
  create(p: Principal, agentId: string, input: { ref?: string }): Promise<Deployment>;
  activate(p: Principal, agentId: string, deploymentId: string): Promise<Deployment>;
}

/** `agentId` null = the organisation's own budget. */
export interface BudgetsService {
  /** Null: nothing is capped. */
  get(p: Principal, agentId: string | null): Promise<Budget | null>;
  put(p: Principal, agentId: string | null, terms: BudgetTerms): Promise<Budget>;
  /** Also when there is none. */
  remove(p: Principal, agentId: string | null): Promise<void>;
}

export interface EgressView extends EgressPolicy {
  /** Nothing was set: it is the installation's default. */
  isDefault: boolean;
  updatedAt: Date | null;
  /** Whether `transparent` has an effect on this host. */
  transparentPossible: boolean;
}

export interface EgressRefusalView {
  host: string;
  port: number;
  reason: EgressReason;
  message: string;
  count: number;
  firstAt: Date;
  lastAt: Date;
  /** A command that would let it through; null when none does. */
  remedy: string | null;
}

export interface EgressTrafficView {
  /** The first day (UTC) that is counted, as YYYY-MM-DD. */
  since: string;
  hosts: { host: string; sentBytes: number; receivedBytes: number; connections: number }[];
}

/** What an agent's sandbox may reach. A change holds when the promise resolves. */
export interface EgressService {
  get(p: Principal, agentId: string): Promise<EgressView>;
  put(p: Principal, agentId: string, policy: EgressPolicy): Promise<EgressView>;
  /** Back to the installation's default. */
  remove(p: Principal, agentId: string): Promise<void>;
  refusals(p: Principal, agentId: string, query: PageQuery): Promise<Page<EgressRefusalView>>;
  traffic(p: Principal, agentId: string): Promise<EgressTrafficView>;
}

export interface ConversationsService {
  listForAgent(p: Principal, agentId: string, query: PageQuery): Promise<Page<Conversation>>;
  get(p: Principal, id: string): Promise<Conversation>;
  remove(p: Principal, id: string): Promise<void>;
  messages(p: Principal, id: string, query: PageQuery): Promise<Page<Message>>;
}

/** A session of the Agent Client Protocol: a conversation, or one to be that nothing was said in yet. */
export interface AcpSession {
  id: string;
  /** The client's working folder, which is no folder of ours; `/workspace` for what began elsewhere. */
  cwd: string;
  /** `''` while nothing was said. */
  title: string;
  /** Null while nothing was said. */
  lastMessageAt: Date | null;
}

export interface AcpSessionsService {
  /** The conversation of its id begins with the first message (`SendInput.mayBegin`). */
  create(p: Principal, agentId: string, input: { cwd: string }): Promise<AcpSession>;
  get(p: Principal, agentId: string, id: string): Promise<AcpSession>;
  /** Newest first, those in which something was said; `cwd` null: of every folder. */
  list(p: Principal, agentId: string, cwd: string | null, query: PageQuery): Promise<Page<AcpSession>>;
  /** Also when there is none. Needs the scope `edit` once something was said. */
  remove(p: Principal, agentId: string, id: string): Promise<void>;
}

export interface ForkInput {
  /** The last turn that is copied is the one of this message; all when left out. */
  messageId?: string;
  /** Another agent of the organisation, which gets the files too. Needs `edit`. */
  toAgentId?: string;
  /** As it was when left out. */
  title?: string;
}

export interface ForksService {
  /**
   * A conversation that begins with what was said in this one. Throws `conversation_busy` unless it is at rest, or was
   * up to `messageId` when the fork is the same agent's, and `conflict` when there is too much of it.
   */
  fork(p: Principal, conversationId: string, input: ForkInput): Promise<Conversation>;
}

export type OnBusy = 'enqueue' | 'interrupt' | 'reject';

export interface SendInput {
  agentId: string;
  conversationId: string | null;
  /** When there is no conversation `conversationId` yet, it begins with this message. */
  mayBegin?: boolean;
  /** May be empty when there are parts. */
  content: string;
  /** Files, data and links beside the text, in the order in which they were given. */
  parts?: MessagePart[];
  /** The sender's own id of the message. It is kept and told to the agent; two sends with one id are two messages. */
  clientMessageId?: string | null;
  /** A JSON object of the sender's; kept, and told to the agent. */
  metadata?: Record<string, unknown> | null;
  onBusy: OnBusy;
  /** Which surface it came by: `api`, later `slack`, `a2a` … */
  source: string;
  /** `requestHash` is of what must be the same for a replay. */
  idempotency: { key: string; requestHash: string } | null;
}

export interface Accepted {
  runId: string;
  conversationId: string;
  agentId: string;
  /** True when the idempotency key was seen before: the run is the first one. */
  replayed: boolean;
}

export interface RunOutcome {
  run: Run;
  /** The assistant's message; null unless the run completed. */
  message: Message | null;
}

/** What a caller says to a question: one of the options of a permission, or what an input asked for. */
export type RunResponse = RunAnswer & {
  /** Names the message that answers, so that the same one is known when it comes again (`RunsService.asked`). */
  repeatKey?: string;
};

export type RunAnswer =
  | { requestId: string; optionId: string }
  /**
   * A text answers the one property that the form has, or its first required text, or its first text. Null = the caller
   * does not want to say.
   */
  | {
      requestId: string;
      content: string | Record<string, unknown> | null;
      /** When the answer came as a message of its own: as in `SendInput`, told to the agent with it. */
      message?: AnswerMessage;
    };

export interface RunsService {
  send(p: Principal, input: SendInput): Promise<Accepted>;
  /**
   * Sends to the conversation of the run `afterRunId`, if that is its last run at the very moment. Null: more was said
   * since, and nothing was done. What was sent before with the same idempotency key is answered wherever it went.
   */
  sendAfter(
    p: Principal,
    afterRunId: string,
    input: Omit<SendInput, 'conversationId' | 'mayBegin'>,
  ): Promise<Accepted | null>;
  get(p: Principal, runId: string): Promise<Run>;
  listForAgent(p: Principal, agentId: string, query: PageQuery): Promise<Page<Run>>;
  /** Waits a few seconds for the harness to stop; the run may still be `running` in the answer. */
  cancel(p: Principal, runId: string): Promise<Run>;
  respond(p: Principal, runId: string, input: RunResponse): Promise<Run>;
  /** What the run waits for, oldest first. */
  questions(p: Principal, runId: string): Promise<Question[]>;
  /** The same, and whether the message of this `repeatKey` has answered something before: both as of one moment. */
  asked(p: Principal, runId: string, repeatKey: string): Promise<{ open: Question[]; isRepeated: boolean }>;
  /** What the run has made so far, in order of their first appearance. */
  artifacts(p: Principal, runId: string): Promise<Artifact[]>;
  /** Resolves when the run has ended, or with what it is after `waitMs`, or early when `signal` aborts. */
  outcome(p: Principal, runId: string, waitMs: number, signal?: AbortSignal): Promise<RunOutcome>;
}

export type EventScope = { conversationId: string } | { runId: string };

export interface EventSink {
  /** In order of seq, nothing missing, nothing twice. False: the sink is full, stop following (it can resume). */
  write(events: ConversationEvent[]): boolean;
  /** Resolves when the client has taken what was written, or is gone: the past is read no faster than it is read. */
  drained(): Promise<void>;
  /** The run has ended, or the service is draining. */
  end(): void;
}

export interface EventsService {
  /** Newest first; `cursor` as in every list. */
  list(p: Principal, scope: EventScope, query: PageQuery): Promise<Page<ConversationEvent>>;
  /** Oldest first, those with seq greater than `after`: at most `limit`, and fewer when they are large. */
  after(
    p: Principal,
    scope: EventScope,
    after: number,
    limit: number,
  ): Promise<{ events: ConversationEvent[]; hasMore: boolean }>;
  /**
   * Everything after `after`, then what comes. Rejects before the first write when not visible. Returns a stop.
   * `isPatient`: what comes is not shown as it comes, so that pieces of texts are written with what comes next.
   */
  follow(
    p: Principal,
    scope: EventScope,
    after: number,
    sink: EventSink,
    isPatient?: boolean,
  ): Promise<() => void>;
}

export interface RateVerdict {
  allowed: boolean;
  quota: number;
  windowSeconds: number;
  remaining: number;
  /** Seconds until the quota is whole again. */
  resetSeconds: number;
  /** Seconds until one more request is let through; 0 when allowed. */
  retryAfterSeconds: number;
}

export interface RateLimitService {
  /** Takes one request; synchronous, from memory, with what other replicas used counted in. */
  take(keyId: string, limit: { quota: number; windowSeconds: number }): RateVerdict;
  /** Reads without taking. */
  peek(keyId: string, limit: { quota: number; windowSeconds: number }): RateVerdict;
  /** Counts a failed authentication of this client address. Null: it may fail so often; else the seconds to wait. */
  authFailure(address: string): number | null;
}

export interface StoredAnswer {
  status: number;
  /** Whose secret stands in the body, if any: once that is revoked, replaced or deleted, the body is forgotten. */
  secretOf: string | null;
  headers: Record<string, string>;
  body: Buffer;
}

/** What a request with an Idempotency-Key does, told to whoever sees to it that it is done once. */
export interface OnceWork {
  /** It waits for something outside the database, so that no transaction may stay open meanwhile. */
  lease: boolean;
  /** With `lease`: done twice it is as done once, so that it is begun anew when it was broken off. */
  repeatable?: boolean;
  run(): Promise<StoredAnswer>;
  /** The answer to keep when `run` has thrown; null = nothing is kept, and a repeated request tries anew. */
  refusal(error: unknown): StoredAnswer | null;
}

export interface IdempotencyService {
  /**
   * Runs `work` once per key and request: in one transaction with its record, so that both are kept or neither is; or,
   * with `lease`, after its key was taken, for as long as this process lives.
   * Throws `idempotency_key_reused` (another request), `idempotency_in_progress` (still running),
   * `idempotency_interrupted` (its process died, or could not keep the answer, and it is not `repeatable`),
   * `secret_withdrawn` (the answer was forgotten with the secret in it).
   */
  once(
    p: Principal,
    key: string,
    requestHash: string,
    work: OnceWork,
  ): Promise<{ answer: StoredAnswer; replayed: boolean }>;
}
