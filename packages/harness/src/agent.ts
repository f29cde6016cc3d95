import { randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { Window } from './compact.ts';
import { historyItems, readHistory, resumeItems } from './history.ts';
import { GatewayClient } from './http.ts';
import { defaultRetry, Model } from './model.ts';
import type { Host, RetryPolicy } from './model.ts';
import { RpcError, RpcServer } from './rpc.ts';
import type { Lines } from './rpc.ts';
import { readPrompt } from './prompt.ts';
import { sandboxPaths, sandboxRoot, type Settings } from './settings.ts';
import { Transcript } from './transcript.ts';
import { Turn } from './turn.ts';
import { Updates } from './updates.ts';
import { anthropicWire } from './wire-anthropic.ts';
import { openaiChatWire } from './wire-openai.ts';
import { ModelError } from './wire.ts';

const extension = 'berth.dev';
/** Of the range that JSON-RPC leaves to applications; -32000 has a meaning in Agent Client Protocol already. */
const turnFailed = -32050;
const notFound = -32002;
const invalidParams = -32602;

export interface AgentOptions {
  settings: Settings;
  gatewaySocket: string;
  childEnv: () => Promise<Record<string, string>>;
  lines: Lines;
  host: Host;
  retry?: RetryPolicy;
}

interface Session {
  id: string;
  cwd: string;
  transcript: Transcript;
  /** The running turn. */
  turn: AbortController | null;
  callIds: Set<string>;
  calls: number;
}

/** The built-in agent: Agent Client Protocol, version 1, over lines. Any number of sessions run at the same time. */
export class Agent {
  readonly #options: AgentOptions;
  readonly #rpc: RpcServer;
  readonly #gateway: GatewayClient;
  readonly #model: Model;
  readonly #window: Window;
  readonly #sessions = new Map<string, Session>();
  readonly #turns = new Set<Promise<unknown>>();
  #recordsCalls = false;

  constructor(options: AgentOptions) {
    const { provider, model, token, wire, modelConnections } = options.settings;
    this.#options = options;
    this.#gateway = new GatewayClient(options.gatewaySocket, modelConnections);
    this.#window = new Window(wire);
    this.#model = new Model({
      gateway: this.#gateway,
      wire: wire === 'anthropic' ? anthropicWire : openaiChatWire,
      provider,
      model,
      token,
      retry: options.retry ?? defaultRetry,
      host: options.host,
    });
    this.#rpc = new RpcServer(options.lines, {
      requests: {
        initialize: (params) => this.#initialize(params),
        'session/new': (params) => this.#newSession(params),
        'session/prompt': (params) => this.#prompt(params),
        'session/close': (params) => this.#close(params),
      },
      notifications: {
        'session/cancel': (params) => this.#sessions.get(`${params['sessionId']}`)?.turn?.abort(),
      },
    });
  }

  /** Serves until the service wants no more; then every turn is cancelled and its processes are ended. */
  async serve(): Promise<void> {
    await this.#rpc.serve();
    for (const session of this.#sessions.values()) session.turn?.abort();
    await Promise.allSettled(this.#turns);
    this.#rpc.flush();
    this.#gateway.close();
  }

  #initialize(params: Record<string, unknown>): object {
    const capabilities = params['clientCapabilities'] as Record<string, unknown> | null | undefined;
    this.#recordsCalls = typeof capabilities === 'object' && ours(capabilities ?? {})['record'] === true;
    return initializeResult;
  }

  #newSession(params: Record<string, unknown>): { sessionId: string } {
    const wanted = params['cwd'];
    if (typeof wanted !== 'string' || !wanted.startsWith('/'))
      throw new RpcError(invalidParams, 'cwd must be an absolute path.');
    const cwd = wanted === sandboxPaths.workspace ? `${sandboxRoot(process.env)}${wanted}` : wanted;
    if (!statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
      throw new RpcError(invalidParams, `cwd: ${cwd} is no directory.`);
    const session: Session = {
      id: randomUUID(),
      cwd,
      transcript: new Transcript(this.#model.wire.encode),
      turn: null,
      callIds: new Set(),
      calls: 0,
    };
    const history = readHistory(ours(params)['history']);
    for (const item of historyItems(history, () => nextId(session))) session.transcript.push(item);
    this.#sessions.set(session.id, session);
    return { sessionId: session.id };
  }

  async #prompt(params: Record<string, unknown>): Promise<object> {
    const session = this.#session(params);
    if (session.turn) throw new RpcError(-32600, 'This session has a turn already.');
    const prompt = readPrompt(params['prompt']);
    if (prompt === null) throw new RpcError(invalidParams, 'prompt must be an array of content blocks.');
    session.transcript.push({ role: 'user', ...prompt });
    for (const item of resumeItems(readHistory(ours(params)['resume']), () => nextId(session)))
      session.transcript.push(item);
    session.turn = new AbortController();
    const turn = this.#runTurn(session, session.turn.signal);
    this.#turns.add(turn);
    try {
      return await turn;
    } finally {
      session.turn = null;
      this.#turns.delete(turn);
    }
  }

  async #runTurn(session: Session, signal: AbortSignal): Promise<object> {
    const updates = new Updates(session.id, (line) => this.#rpc.write(line));
    const turn = new Turn({
      sessionId: session.id,
      cwd: session.cwd,
      instructions: this.#options.settings.instructions,
      transcript: session.transcript,
      window: this.#window,
      model: this.#model,
      updates,
      recorded: () =>
        this.#recordsCalls
          ? this.#rpc.ask(`_${extension}/record`, { sessionId: session.id })
          : Promise.resolve(),
      ask: (message, form, stop) => this.#ask(session.id, message, form, stop),
      signal,
      childEnv: this.#options.childEnv,
      callIds: session.callIds,
      nextId: () => nextId(session),
    });
    try {
      const stopReason = await turn.run();
      return { stopReason, _meta: { [extension]: { usage: turn.usage } } };
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      const code = error.code === 'budget_exceeded' ? 'budget_exceeded' : 'model_error';
      throw new RpcError(turnFailed, error.message, { code });
    } finally {
      updates.close();
    }
  }

  /** `elicitation/create`; a turn that is cancelled waits no longer. */
  async #ask(sessionId: string, message: string, requestedSchema: object, signal: AbortSignal) {
    const cancelled = new Promise<null>((resolve) => {
      if (signal.aborted) resolve(null);
      signal.addEventListener('abort', () => resolve(null), { once: true });
    });
    const asked = this.#rpc.ask('elicitation/create', { sessionId, mode: 'form', message, requestedSchema });
    const answer = (await Promise.race([asked, cancelled])) as Record<string, unknown> | null;
    const content = answer?.['action'] === 'accept' ? answer['content'] : null;
    return typeof content === 'object' ? (content as Record<string, unknown> | null) : null;
  }

  #close(params: Record<string, unknown>): object {
    const session = this.#session(params);
    session.turn?.abort();
    this.#sessions.delete(session.id);
    return {};
  }

  #session(params: Record<string, unknown>): Session {
    const session = this.#sessions.get(`${params['sessionId']}`);
    if (!session) throw new RpcError(notFound, 'There is no such session.');
    return session;
  }
}

const initializeResult = {
  protocolVersion: 1,
  agentCapabilities: {
    loadSession: false,
    promptCapabilities: { image: true, audio: false, embeddedContext: true },
    mcpCapabilities: { http: false, sse: false },
    sessionCapabilities: { close: {} },
    _meta: { [extension]: { history: true } },
  },
  agentInfo: { name: 'berth', title: 'Berth', version: '0.1.0' },
  authMethods: [],
};

function ours(params: Record<string, unknown>): Record<string, unknown> {
  const meta = params['_meta'] as Record<string, unknown> | null | undefined;
  const value = typeof meta === 'object' && meta !== null ? meta[extension] : undefined;
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function nextId(session: Session): string {
  return `call_${++session.calls}_${randomUUID().slice(0, 8)}`;
}
