import type {
  AgentConnection,
  ClientCapabilities,
  InitializeResponse,
  McpServer,
  PromptRequest,
} from '@agentclientprotocol/sdk';
import { agent as agentApp, methods, RequestError } from '@agentclientprotocol/sdk';
import { limits } from '../../domain/limits.ts';
import type { Log } from '../../domain/log.ts';
import type { Agent } from '../../domain/nouns.ts';
import type { Caller, Services } from '../../services/api.ts';
import { idempotencyKey, requestHash } from '../http/idempotency.ts';
import { messageOf } from './content.ts';
import { invalidParams, noSession, requestError } from './errors.ts';
import type { Place } from './place.ts';
import { Session } from './session.ts';

export interface AcpAgentOptions {
  services: Pick<Services, 'acpSessions' | 'runs' | 'events'>;
  agent: Agent;
  caller: Caller;
  requestId: string;
  log: Log;
  /** Before each request of the client: whether its key still works and may make one more. Throws DomainError. */
  admit(): Promise<void>;
  /** The client's side is there; called once. */
  onConnect(connection: AgentConnection): void;
}

/** The highest that is spoken here; what a client asks for beyond it is answered with it. */
const PROTOCOL_VERSION = 1;

/**
 * An agent of ours as an agent of the Agent Client Protocol v1, for one connection. A session is a conversation, a
 * prompt is a run, and all that is told is read from the log.
 */
export function acpAgent(options: AcpAgentOptions): ReturnType<typeof agentApp> {
  const { services, agent, caller, requestId, log } = options;
  const sessions = new Map<string, Session>();
  let connection: AgentConnection | null = null;
  let capabilities: ClientCapabilities = {};
  /** Of all requests that came so far: what comes after them must not overtake them. */
  let admitted: Promise<unknown> = Promise.resolve();

  const place = (): Place => ({
    services,
    caller,
    agentId: agent.id,
    requestId,
    client: connection!.client,
    capabilities,
    log,
    close: () => connection?.close(),
  });

  /** Every request goes through it: its key, its rate, and our errors as the protocol has them. */
  const guarded =
    <P, R>(handle: (params: P, signal: AbortSignal) => Promise<R>) =>
    async ({ params, signal }: { params: P; signal: AbortSignal }): Promise<R> => {
      try {
        const admission = options.admit();
        admitted = Promise.allSettled([admitted, admission]);
        await admission;
        return await handle(params, signal);
      } catch (error) {
        const refusal = requestError(error, requestId);
        if (refusal.code === -32603 && !(error instanceof RequestError))
          log.error('request failed', { requestId, cause: error });
        throw refusal;
      }
    };

  function opened(sessionId: string): Session {
    const session = sessions.get(sessionId);
    if (!session) throw noSession(sessionId);
    return session;
  }

  function add(sessionId: string): Session {
    const before = sessions.get(sessionId);
    if (!before && sessions.size >= limits.acpSessionsPerConnection) {
      throw invalidParams('sessionId', `cannot be opened: ${sessions.size} are open; close one of them.`);
    }
    before?.leave();
    const session = new Session(place(), sessionId);
    sessions.set(sessionId, session);
    return session;
  }

  /** What exists and is not in the middle of a prompt of this very connection. */
  async function openable(params: { sessionId: string; cwd: string; mcpServers?: McpServer[] | null }) {
    const { sessionId } = params;
    checkPlace(params);
    if (sessions.get(sessionId)?.isPrompted)
      throw invalidParams('sessionId', 'has a prompt that was not answered yet.');
    const { lastMessageAt } = await services.acpSessions
      .get(caller, agent.id, sessionId)
      .catch((error: unknown) => {
        throw (error as { code?: string }).code === 'not_found' ? noSession(sessionId) : error;
      });
    return { session: add(sessionId), isEmpty: lastMessageAt === null };
  }

  return agentApp({ name: 'berth' })
    .onConnect((made) => {
      connection = made;
      made.signal.addEventListener('abort', () => {
        for (const session of sessions.values()) session.leave();
        sessions.clear();
      });
      options.onConnect(made);
    })
    .onRequest(methods.agent.initialize, ({ params }) => {
      capabilities = params.clientCapabilities ?? {};
      return initialized(agent, caller);
    })
    .onRequest(
      methods.agent.session.new,
      guarded(async (params) => {
        checkPlace(params);
        const { id } = await services.acpSessions.create(caller, agent.id, { cwd: params.cwd });
        add(id);
        return { sessionId: id, ...withMeta(ignored(params.mcpServers)) };
      }),
    )
    .onRequest(
      methods.agent.session.load,
      guarded(async (params) => {
        const { session, isEmpty } = await openable(params);
        if (!isEmpty) await session.load();
        setImmediate(() => session.askAgain());
        return withMeta(ignored(params.mcpServers));
      }),
    )
    .onRequest(
      methods.agent.session.resume,
      guarded(async (params) => {
        const { session, isEmpty } = await openable(params);
        const after = ours(params)['after'];
        const seq = isEmpty
          ? 0
          : await session.resume(typeof after === 'number' && after >= 0 ? after : null);
        setImmediate(() => session.askAgain());
        return withMeta({ seq, ...ignored(params.mcpServers) });
      }),
    )
    .onRequest(
      methods.agent.session.list,
      guarded(async ({ cwd, cursor }) => {
        const query = { limit: limits.pageDefault, cursor: cursor ?? null };
        const page = await services.acpSessions.list(caller, agent.id, cwd ?? null, query);
        return {
          sessions: page.items.map((one) => ({
            sessionId: one.id,
            cwd: one.cwd,
            title: one.title,
            updatedAt: one.lastMessageAt?.toISOString() ?? null,
          })),
          ...(page.nextCursor !== null && { nextCursor: page.nextCursor }),
        };
      }),
    )
    .onRequest(
      methods.agent.session.close,
      guarded(async ({ sessionId }) => {
        const session = opened(sessionId);
        await session.close();
        sessions.delete(sessionId);
        return {};
      }),
    )
    .onRequest(
      methods.agent.session.delete,
      guarded(async ({ sessionId }) => {
        await services.acpSessions.remove(caller, agent.id, sessionId);
        sessions.get(sessionId)?.leave();
        sessions.delete(sessionId);
        return {};
      }),
    )
    .onRequest(
      methods.agent.session.prompt,
      guarded((params, signal) => {
        const session = opened(params.sessionId);
        // By `$/cancel_request`; a connection that is gone cancels nothing.
        const cancel = () => {
          if (signal.reason instanceof RequestError && !connection?.signal.aborted) session.cancel();
        };
        const ended = session.prompt(promptInput(params));
        if (signal.aborted) cancel();
        else signal.addEventListener('abort', cancel);
        return ended;
      }),
    )
    .onNotification(methods.agent.session.cancel, async ({ params }) => {
      await admitted;
      sessions.get(params.sessionId)?.cancel();
    });
}

function initialized(agent: Agent, caller: Caller): InitializeResponse {
  return {
    protocolVersion: PROTOCOL_VERSION,
    agentInfo: { name: 'berth', title: agent.name, version: VERSION },
    agentCapabilities: {
      loadSession: true,
      promptCapabilities: { image: true, audio: true, embeddedContext: true },
      mcpCapabilities: { http: false, sse: false },
      sessionCapabilities: {
        list: {},
        resume: {},
        close: {},
        ...(caller.scope === 'edit' && { delete: {} }),
      },
    },
    // The key came with the connection.
    authMethods: [],
    ...withMeta({ agentId: agent.id, maxMessageBytes: limits.acpMessageBytes }),
  };
}

const VERSION = '0.1.0';

function promptInput(params: PromptRequest) {
  const message = messageOf(params.prompt);
  const given = ours(params)['idempotencyKey'];
  const key = typeof given === 'string' ? idempotencyKey(given) : null;
  const hash = () => requestHash('acp session/prompt', [params.sessionId, message]);
  return { ...message, idempotency: key === null ? null : { key, requestHash: hash() } };
}

/** What a client of ours says beyond the protocol, in `_meta`. */
function ours(params: { _meta?: Record<string, unknown> | null }): Record<string, unknown> {
  const found = params._meta?.['berth.dev'];
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {};
}

/**
 * The client's working folder is a path on its own machine, whichever that is: it only has to be one. A server of tools
 * over HTTP was not offered, so that whoever sends one expects it to be used.
 */
function checkPlace(params: {
  cwd: string;
  additionalDirectories?: string[] | null;
  mcpServers?: McpServer[] | null;
}): void {
  const { cwd } = params;
  if (!/^(\/|\\\\|[A-Za-z]:[\\/])/.test(cwd)) throw invalidParams('cwd', 'must be an absolute path.');
  if (cwd.length > limits.acpCwdChars)
    throw invalidParams('cwd', `must have at most ${limits.acpCwdChars} characters.`);
  if (params.mcpServers?.some((server) => 'url' in server))
    throw invalidParams('mcpServers', 'over HTTP are not taken; see mcpCapabilities.');
}

/** Servers of tools that would run on the client's machine cannot be reached from a sandbox: the client is told which. */
function ignored(servers: McpServer[] | null | undefined): { ignoredMcpServers?: string[] } {
  const names = (servers ?? []).map((server) => ('name' in server ? server.name : ''));
  return names.length > 0 ? { ignoredMcpServers: names } : {};
}

/** What we say beyond the protocol; nothing at all when there is nothing. */
function withMeta(told: Record<string, unknown>): { _meta?: Record<string, unknown> } {
  return Object.keys(told).length > 0 ? { _meta: { 'berth.dev': told } } : {};
}
