import { createChannels } from './channels.ts';
import { BerthError } from './errors.ts';
import { createSend, type ClientOptions, type RequestOptions, type Send } from './http.ts';
import { createSandboxes } from './sandboxes.ts';
import { createSchedules } from './schedules.ts';
import { createWebhookEndpoints } from './webhook-endpoints.ts';
import { ENDS, eventsOf, followEvents, type FollowOptions } from './streams.ts';
import type {
  Agent,
  Artifact,
  AgentCreate,
  AgentUpdate,
  ApiKey,
  ApiKeyCreate,
  ApiKeyMinted,
  BudgetAnswer,
  BudgetPut,
  EgressAnswer,
  EgressPut,
  EgressRefusal,
  EgressTraffic,
  ChatSend,
  Conversation,
  ConversationForkSend,
  Deployment,
  Event,
  Limits,
  Message,
  Run,
  Secret,
  SendResult,
} from './types.ts';

export interface ListOptions {
  /** Page size, 1 to 100. */
  limit?: number;
  cursor?: string;
}

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

export type SendInput = Omit<ChatSend, 'stream'>;

export interface SendOptions {
  /** The same key and input within 24 hours give the first answer again. Made when absent. */
  idempotencyKey?: string;
  /** Seconds to wait for the end of the run before a 202 is answered. Default 120. */
  waitSeconds?: number;
  signal?: AbortSignal;
}

const TERMINAL: ReadonlySet<string> = new Set(['completed', 'failed', 'cancelled']);

export type BerthClient = ReturnType<typeof createClient>;

/** A client of one Berth service with one key. Every call throws BerthError when the answer is not 2xx. */
export function createClient(options: ClientOptions) {
  const send = createSend(options);
  const json = async <T>(method: string, path: string, request?: RequestOptions): Promise<T> => {
    const response = await send(method, path, request);
    return (response.status === 204 ? undefined : await response.json()) as T;
  };
  const list = async <T>(path: string, noun: string, query: ListOptions = {}): Promise<Page<T>> => {
    const page = await json<Record<string, unknown>>('GET', path, { query: { ...query } });
    return { items: page[noun] as T[], nextCursor: page['nextCursor'] as string | null };
  };
  const id = encodeURIComponent;
  const getRun = async (runId: string) => (await json<{ run: Run }>('GET', `/v1/runs/${id(runId)}`)).run;
  const followRun = (runId: string, follow?: FollowOptions) =>
    followEvents(
      send,
      `/v1/runs/${id(runId)}/events`,
      async () => TERMINAL.has((await getRun(runId)).status),
      follow,
    );

  return {
    agents: {
      list: (query?: ListOptions) => list<Agent>('/v1/agents', 'agents', query),
      get: async (agentId: string) =>
        (await json<{ agent: Agent }>('GET', `/v1/agents/${id(agentId)}`)).agent,
      create: async (input: AgentCreate) =>
        (await json<{ agent: Agent }>('POST', '/v1/agents', { body: input })).agent,
      update: async (agentId: string, patch: AgentUpdate) =>
        (await json<{ agent: Agent }>('PATCH', `/v1/agents/${id(agentId)}`, { body: patch })).agent,
      delete: (agentId: string) => json<void>('DELETE', `/v1/agents/${id(agentId)}`),
    },
    apiKeys: {
      listForAgent: (agentId: string, query?: ListOptions) =>
        list<ApiKey>(`/v1/agents/${id(agentId)}/api-keys`, 'keys', query),
      createForAgent: (agentId: string, input: { name: string }) =>
        json<ApiKeyMinted>('POST', `/v1/agents/${id(agentId)}/api-keys`, { body: input }),
      revokeForAgent: (agentId: string, keyId: string) =>
        json<void>('DELETE', `/v1/agents/${id(agentId)}/api-keys/${id(keyId)}`),
      list: (query?: ListOptions) => list<ApiKey>('/v1/api-keys', 'keys', query),
      create: (input: ApiKeyCreate) => json<ApiKeyMinted>('POST', '/v1/api-keys', { body: input }),
      revoke: (keyId: string) => json<void>('DELETE', `/v1/api-keys/${id(keyId)}`),
    },
    secrets: {
      list: (agentId: string, query?: ListOptions) =>
        list<Secret>(`/v1/agents/${id(agentId)}/secrets`, 'secrets', query),
      set: (agentId: string, key: string, input: { value: string; hosts?: string[] }) =>
        json<void>('PUT', `/v1/agents/${id(agentId)}/secrets/${id(key)}`, { body: input }),
      delete: (agentId: string, key: string) =>
        json<void>('DELETE', `/v1/agents/${id(agentId)}/secrets/${id(key)}`),
    },
    ...createSchedules(json, list),
    ...createWebhookEndpoints(json, list),
    ...createChannels(json, list),
    deployments: {
      list: (agentId: string, query?: ListOptions) =>
        list<Deployment>(`/v1/agents/${id(agentId)}/deployments`, 'deployments', query),
      create: async (agentId: string, input: { ref?: string } = {}) =>
        (
          await json<{ deployment: Deployment }>('POST', `/v1/agents/${id(agentId)}/deployments`, {
            body: input,
          })
        ).deployment,
      activate: async (agentId: string, deploymentId: string) =>
        (
          await json<{ deployment: Deployment }>(
            'POST',
            `/v1/agents/${id(agentId)}/deployments/${id(deploymentId)}/activate`,
          )
        ).deployment,
    },
    conversations: {
      list: (agentId: string, query?: ListOptions) =>
        list<Conversation>(`/v1/agents/${id(agentId)}/conversations`, 'conversations', query),
      get: async (conversationId: string) =>
        (await json<{ conversation: Conversation }>('GET', `/v1/conversations/${id(conversationId)}`))
          .conversation,
      delete: (conversationId: string) => json<void>('DELETE', `/v1/conversations/${id(conversationId)}`),
      /** Begins a conversation with what was said in this one; with `toAgentId` another agent goes on, with the files. */
      fork: async (conversationId: string, input: ConversationForkSend = {}) =>
        (
          await json<{ conversation: Conversation }>('POST', `/v1/conversations/${id(conversationId)}/fork`, {
            body: input,
          })
        ).conversation,
      messages: (conversationId: string, query?: ListOptions) =>
        list<Message>(`/v1/conversations/${id(conversationId)}/messages`, 'messages', query),
      /** The events so far, oldest first. */
      events: (conversationId: string) => eventPages(json, `/v1/conversations/${id(conversationId)}/events`),
      /** Stays open until `signal` aborts; resumes by itself. */
      follow: (conversationId: string, follow?: FollowOptions) =>
        followEvents(send, `/v1/conversations/${id(conversationId)}/events`, null, follow),
    },
    runs: {
      list: (agentId: string, query?: ListOptions) =>
        list<Run>(`/v1/agents/${id(agentId)}/runs`, 'runs', query),
      get: getRun,
      cancel: async (runId: string) => (await json<{ run: Run }>('POST', `/v1/runs/${id(runId)}/cancel`)).run,
      /** To a permission `optionId`, to an input `content`; null = you do not want to say. */
      respond: async (
        runId: string,
        input:
          | { requestId: string; optionId: string }
          | { requestId: string; content: string | Record<string, unknown> | null },
      ) => (await json<{ run: Run }>('POST', `/v1/runs/${id(runId)}/respond`, { body: input })).run,
      /** What the run has made so far. */
      artifacts: async (runId: string) =>
        (await json<{ artifacts: Artifact[] }>('GET', `/v1/runs/${id(runId)}/artifacts`)).artifacts,
      /** Ends with the run; resumes by itself. */
      follow: (runId: string, follow?: FollowOptions) => followRun(runId, follow),
    },
    chat: {
      /** Waits for the answer. `status` tells whether it is there (`completed`) or still to come. */
      send: (input: SendInput, sendOptions: SendOptions = {}) =>
        json<SendResult>('POST', '/api/v1/chat/send', sendRequest(input, sendOptions)),
      /** Yields the run's events as they happen, through lost connections, until the run has ended. */
      stream: (input: SendInput, sendOptions: SendOptions = {}) =>
        streamSend(send, followRun, input, sendOptions),
    },
    egress: {
      /** What the agent may reach on the network. */
      get: async (agentId: string) => (await json<EgressAnswer>('GET', egressPath(agentId))).egress,
      /** Replaces the whole policy. */
      set: async (agentId: string, input: EgressPut) =>
        (await json<EgressAnswer>('PUT', egressPath(agentId), { body: input })).egress,
      /** Back to the installation's default. */
      reset: (agentId: string) => json<void>('DELETE', egressPath(agentId)),
      refusals: (agentId: string, query?: ListOptions) =>
        list<EgressRefusal>(`${egressPath(agentId)}/refusals`, 'refusals', query),
      traffic: (agentId: string) => json<EgressTraffic>('GET', `${egressPath(agentId)}/traffic`),
    },
    budgets: {
      /** Of the organisation, or of one agent; null = no cap. */
      get: async (agentId?: string) => (await json<BudgetAnswer>('GET', budgetPath(agentId))).budget,
      set: async (input: BudgetPut, agentId?: string) =>
        (await json<BudgetAnswer>('PUT', budgetPath(agentId), { body: input })).budget,
      remove: (agentId?: string) => json<void>('DELETE', budgetPath(agentId)),
    },
    sandboxes: createSandboxes(send),
    limits: () => json<Limits>('GET', '/v1/limits'),
  };
}

function egressPath(agentId: string): string {
  return `/v1/agents/${encodeURIComponent(agentId)}/egress`;
}

function budgetPath(agentId: string | undefined): string {
  return agentId === undefined ? '/v1/budget' : `/v1/agents/${encodeURIComponent(agentId)}/budget`;
}

function sendRequest(input: SendInput, options: SendOptions): RequestOptions {
  const headers: Record<string, string> = {};
  if (options.idempotencyKey) headers['idempotency-key'] = options.idempotencyKey;
  if (options.waitSeconds !== undefined) headers['prefer'] = `wait=${options.waitSeconds}`;
  return {
    headers,
    body: { ...input, conversationId: input.conversationId ?? null },
    ...(options.signal ? { signal: options.signal } : {}),
  };
}

async function* streamSend(
  send: Send,
  followRun: (runId: string, follow: FollowOptions) => AsyncGenerator<Event>,
  input: SendInput,
  options: SendOptions,
): AsyncGenerator<Event> {
  // One key for all tries: a stream that broke before its first event is asked for again without a second run.
  const request = sendRequest(input, {
    ...options,
    idempotencyKey: options.idempotencyKey ?? crypto.randomUUID(),
  });
  request.headers = { ...request.headers, accept: 'text/event-stream' };
  const response = await send('POST', '/api/v1/chat/send', request);
  // Names the run even when the stream is cut before its first event.
  const runId = /^\/v1\/runs\/([^/]+)\/events$/.exec(response.headers.get('content-location') ?? '')?.[1];
  let after = 0;
  for await (const event of eventsOf(response)) {
    after = event.seq;
    yield event;
    if (ENDS.has(event.type)) return;
  }
  if (options.signal?.aborted) return;
  if (runId === undefined)
    throw new BerthError('The answer is no stream of a run.', { status: response.status });
  // The connection was cut, the run goes on: take up its stream where it broke off.
  yield* followRun(runId, { after, ...(options.signal ? { signal: options.signal } : {}) });
}

async function* eventPages(
  json: <T>(method: string, path: string, request?: RequestOptions) => Promise<T>,
  path: string,
): AsyncGenerator<Event> {
  for (let after = 0; ;) {
    const { events } = await json<{ events: Event[] }>('GET', path, { query: { after, limit: 100 } });
    yield* events;
    if (events.length === 0) return;
    after = events.at(-1)!.seq;
  }
}

/** All items of a list, page by page. */
export async function* everyItem<T>(page: (query: ListOptions) => Promise<Page<T>>): AsyncGenerator<T> {
  for (let cursor: string | null = null; ;) {
    const { items, nextCursor } = await page(cursor === null ? { limit: 100 } : { limit: 100, cursor });
    yield* items;
    if (nextCursor === null) return;
    cursor = nextCursor;
  }
}
