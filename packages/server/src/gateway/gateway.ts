import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Log } from '../domain/log.ts';
import type { ModelCaller, ModelGateway, ModelGatewayHooks } from '../domain/ports/model-gateway.ts';
import { prepareCall } from './call.ts';
import type { Call } from './call.ts';
import { answerDemo } from './demo/answer.ts';
import { listModels } from './list-models.ts';
import { findOllama } from './ollama.ts';
import { estimateMicros, tokensUsed, usageEntries } from './prices.ts';
import type { Tokens } from './prices.ts';
import { demoProvider } from './demo/provider.ts';
import type { Provider } from './providers.ts';
import { readBody } from './read-body.ts';
import { parseRoute } from './routes.ts';
import type { Route } from './routes.ts';
import { TokenScan } from './token-scan.ts';
import { closeConnections, defaultTimeouts, openConnections, sendUpstream } from './upstream.ts';
import type { Connections, Timeouts } from './upstream.ts';
import { wireError, WireError } from './wires.ts';
import type { Wire } from './wires.ts';

export interface ModelGatewayOptions {
  /** Of `readProviders`. */
  providers: Map<string, Provider>;
  hooks: ModelGatewayHooks;
  log: Log;
  /** BERTH_DEFAULT_MODEL; null = the first configured provider's. */
  defaultModel?: string | null;
  timeouts?: Partial<Timeouts>;
  /** Look for Ollama; only tests that must not see the machine's own say no. */
  detectOllama?: boolean;
}

/** Output tokens that are set aside when a request names no limit of its own. */
const assumedOutputTokens = 4096;

interface Gateway {
  providers: ReadonlyMap<string, Provider>;
  hooks: ModelGatewayHooks;
  log: Log;
  connections: Connections;
  timeouts: Timeouts;
}

/** Looks for Ollama (300 ms at most) and opens the gateway; it listens nowhere, requests come in by `handle`. */
export async function createModelGateway(options: ModelGatewayOptions): Promise<ModelGateway> {
  const providers = new Map(options.providers).set(demoProvider.name, demoProvider);
  const gateway: Gateway = {
    providers,
    hooks: options.hooks,
    log: options.log,
    connections: openConnections(),
    timeouts: { ...defaultTimeouts, ...options.timeouts },
  };
  const ollama = findOllama(providers.get('ollama'), options.detectOllama ?? true);
  await ollama.check();
  const isUsable = (provider: Provider): boolean => {
    if (provider.name === 'ollama' && !provider.needsKey) return ollama.isFound();
    return provider.kind === 'demo' || !provider.needsKey || provider.key !== null;
  };
  const modelOf = (provider: Provider): string => {
    const name =
      provider.defaultModel || (provider.name === 'ollama' ? ollama.firstModel() : provider.models[0]);
    return name ? `${provider.name}/${name}` : '';
  };
  return {
    handle(caller, request, response) {
      answer(gateway, caller, request, response).catch((error: unknown) => {
        gateway.log.error('model gateway failed', { agentId: caller.agentId, error: String(error) });
        response.destroy();
      });
    },
    providers: () =>
      [...providers.values()].map((provider) => ({
        name: provider.name,
        wire: provider.wire,
        baseUrl: provider.baseUrl,
        hasKey: isUsable(provider),
        keyVariable: provider.keyVariable,
        defaultModel: modelOf(provider),
      })),
    defaultModel() {
      if (options.defaultModel) return options.defaultModel;
      const first = [...providers.values()].find(
        (provider) => isUsable(provider) && modelOf(provider) !== '',
      );
      return modelOf(first ?? demoProvider);
    },
    close: () => closeConnections(gateway.connections),
  };
}

async function answer(
  gateway: Gateway,
  caller: ModelCaller,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let wire: Wire = guessWire(request);
  try {
    const route = parseRoute(request.method ?? '', request.url ?? '');
    if (!route) throw new WireError('not_found', 'The model gateway has no such path.');
    wire = route.wire;
    checkToken(caller, request);
    if (route.purpose === 'list') {
      sendJson(response, 200, listModels(caller, route, gateway.providers));
      return;
    }
    const body = await readBody(request);
    const call = prepareCall(caller, route, gateway.providers, body);
    await meteredCall(gateway, caller, route, call, request, response);
  } catch (error) {
    if (!(error instanceof WireError)) {
      gateway.log.error('model gateway failed', { agentId: caller.agentId, error: String(error) });
    }
    const refusal =
      error instanceof WireError ? error : new WireError('internal', 'The model gateway failed.');
    sendError(request, response, wire, refusal);
  }
}

function guessWire(request: IncomingMessage): Wire {
  if (request.headers['x-goog-api-key'] !== undefined) return 'gemini';
  return request.headers['anthropic-version'] !== undefined ? 'anthropic' : 'openai-chat';
}

/** The token may come by any header that vendors' clients use; it is compared by its hash, in constant time. */
function checkToken(caller: ModelCaller, request: IncomingMessage): void {
  const expected = Buffer.from(caller.tokenHash, 'base64url');
  const bearer = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
  for (const token of [request.headers['x-api-key'], bearer, request.headers['x-goog-api-key']]) {
    if (typeof token !== 'string') continue;
    const hash = createHash('sha256').update(token).digest();
    if (hash.length === expected.length && timingSafeEqual(hash, expected)) return;
  }
  throw new WireError(
    'token_invalid',
    "The sandbox's model token is missing or wrong: send it as x-api-key, x-goog-api-key or Authorization: Bearer.",
  );
}

/** Sets the estimate aside, makes the call, and reports what it used exactly once. */
async function meteredCall(
  gateway: Gateway,
  caller: ModelCaller,
  route: Route,
  call: Call,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const requestBytes = call.body.reduce((sum, piece) => sum + piece.length, 0);
  const price = call.provider.prices.get(call.model) ?? null;
  const isMetered = route.purpose !== 'count';
  const maxOutput = route.purpose === 'generate' ? (call.maxOutputTokens ?? assumedOutputTokens) : 0;
  const estimate = isMetered ? estimateMicros(requestBytes, maxOutput, price) : 0n;
  const reserved = isMetered ? await gateway.hooks.reserve(caller, estimate) : null;
  if (reserved && !reserved.ok) throw new WireError('budget_exceeded', reserved.message);
  try {
    if (response.destroyed) return;
    const report = (tokens: Tokens): void => {
      if (!isMetered) return;
      const entries = usageEntries(tokens, price);
      if (entries.length === 0) return;
      const version = price === null ? 'unknown' : call.provider.priceVersion;
      gateway.hooks.onUsage(caller, {
        model: `${call.provider.name}/${call.model}`,
        sessionId: sessionOf(request),
        entries,
        priceVersion: `${version}${tokens.isEstimated ? '+estimated' : ''}${call.usesOwnKey ? '+own-key' : ''}`,
      });
    };
    if (call.provider.kind === 'demo') await answerDemo(route, call, response, report);
    else await passThrough(gateway, route, call, { request, response, requestBytes, report });
  } finally {
    if (reserved?.ok) reserved.release();
  }
}

function sessionOf(request: IncomingMessage): string | null {
  const session = request.headers['x-berth-session'];
  return typeof session === 'string' && /^[\x21-\x7e]{1,200}$/.test(session) ? session : null;
}

interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  requestBytes: number;
  report: (tokens: Tokens) => void;
}

async function passThrough(gateway: Gateway, route: Route, call: Call, exchange: Exchange): Promise<void> {
  const { request, response, requestBytes, report } = exchange;
  let scan: TokenScan | null = null;
  const outcome = await sendUpstream(route, call, {
    connections: gateway.connections,
    timeouts: gateway.timeouts,
    incoming: request,
    response,
    onStart: (upstream) => {
      const isSse = (upstream.headers['content-type'] ?? '').includes('event-stream');
      scan = new TokenScan(route.wire, isSse);
    },
    onChunk: (chunk) => scan?.feed(chunk),
  });
  // A client that leaves while the model is still reading the prompt has used it all the same.
  const wasAbandoned = outcome.status === null && outcome.error === null;
  if (scan !== null || wasAbandoned) {
    const { counts, answerBytes } = scan ?? new TokenScan(route.wire, false);
    report(tokensUsed(route.wire, counts, { requestBytes, answerBytes, isComplete: outcome.isComplete }));
  }
  if (outcome.error) {
    gateway.log.warn('model provider failed', {
      provider: call.provider.name,
      status: outcome.status,
      code: outcome.error.code,
    });
    throw outcome.error;
  }
}

function sendError(request: IncomingMessage, response: ServerResponse, wire: Wire, error: WireError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  // Unread bytes of a refused body would be taken for the next request.
  if (!request.complete) response.setHeader('connection', 'close');
  const { status, body } = wireError(wire, error.code, error.message);
  sendJson(response, status, body);
}

function sendJson(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}
