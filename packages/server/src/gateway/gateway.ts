import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Bucket, type Pace } from '../domain/bucket.ts';
import { DomainError } from '../domain/errors.ts';
import { type BodyHold, Flight } from '../domain/flight.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import { bySize } from '../domain/slices.ts';
import type { ReadEgressPolicy } from '../domain/ports/egress.ts';
import type { ModelCaller, ModelGateway, ModelGatewayHooks } from '../domain/ports/model-gateway.ts';
import { prepareCall } from './call.ts';
import { listModels } from './list-models.ts';
import { meteredCall } from './metered-call.ts';
import type { MeterOptions } from './metered-call.ts';
import { findOllama } from './ollama.ts';
import { demoProvider } from './demo/provider.ts';
import type { Provider } from './provider.ts';
import { readBody } from './read-body.ts';
import { parseRoute } from './routes.ts';
import { refuseUrlSources } from './url-sources.ts';
import { closeConnections, defaultTimeouts, openConnections } from './upstream.ts';
import type { Timeouts } from './upstream.ts';
import { wireError, WireError } from './wires.ts';
import type { Wire } from './wires.ts';

export interface ModelGatewayOptions {
  /** Of `readProviders`. */
  providers: Map<string, Provider>;
  hooks: ModelGatewayHooks;
  /** Asked for a request that lets the provider fetch something. */
  readPolicy: ReadEgressPolicy;
  log: Log;
  /** BERTH_DEFAULT_MODEL; null = the first configured provider's. */
  defaultModel?: string | null;
  timeouts?: Partial<Timeouts>;
  /** Request bodies that are held at once; default: `limits.modelBodies`. */
  bodies?: Flight;
  /** How fast one sandbox may ask. */
  requestPace?: Pace;
  /** Look for Ollama; only tests that must not see the machine's own say no. */
  detectOllama?: boolean;
}

interface Gateway extends MeterOptions {
  providers: ReadonlyMap<string, Provider>;
  /** Bounds what callers can make this process hold: request bodies are kept until their call has ended. */
  bodies: Flight;
  readPolicy: ReadEgressPolicy;
  /** Of each sandbox that has asked for something. */
  paces: WeakMap<ModelCaller, Bucket>;
  requestPace: Pace;
}

/** Looks for Ollama (300 ms at most) and opens the gateway; it listens nowhere, requests come in by `handle`. */
export async function createModelGateway(options: ModelGatewayOptions): Promise<ModelGateway> {
  const providers = new Map(options.providers).set(demoProvider.name, demoProvider);
  const gateway: Gateway = {
    providers,
    bodies: options.bodies ?? new Flight(limits.modelBodies),
    paces: new WeakMap(),
    requestPace: options.requestPace ?? limits.gatewayRequests,
    hooks: options.hooks,
    readPolicy: options.readPolicy,
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
  const held = gateway.bodies.open(caller.orgId, { partId: caller.sandboxId });
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  // Whatever it asks for: a refusal is work as well.
  const tooFast = overPace(gateway, caller);
  try {
    const route = parseRoute(request.method ?? '', request.url ?? '');
    if (!route) throw new WireError('not_found', 'The model gateway has no such path.');
    wire = route.wire;
    if (tooFast) throw tooFast;
    checkToken(caller, request);
    if (route.purpose === 'list') {
      sendJson(response, 200, listModels(caller, route, gateway.providers));
      return;
    }
    const body = await readBody(request, (bytes) => hold(held, bytes));
    const sender = { orgId: caller.orgId, id: caller.sandboxId, gone: gone.signal };
    const call = await bySize(sender, body.length, prepareCall(caller, route, gateway.providers, body));
    if (!call.provider.allowServerTools)
      await refuseUrlSources(gateway.readPolicy, caller, sender, route.wire, body);
    await meteredCall(gateway, { caller, route, call, request, response, requestBytes: body.length });
  } catch (error) {
    // What is let go because its sandbox went away is told to nobody, and is no fault.
    if (gone.signal.aborted && error instanceof DomainError) return;
    if (!(error instanceof WireError)) {
      gateway.log.error('model gateway failed', { agentId: caller.agentId, error: String(error) });
    }
    const known = error instanceof WireError ? error : new WireError('internal', 'The model gateway failed.');
    sendError(request, response, wire, tooFast ?? known);
  } finally {
    held.drop();
  }
}

/** What is refused gets 429, which clients answer by waiting. */
function hold(held: BodyHold, bytes: number): void {
  try {
    held.add(bytes);
  } catch {
    throw new WireError(
      'too_busy',
      'Too many large model requests at once; try again when others have ended.',
    );
  }
}

/** The socket counts connections, and one that is kept alive can ask thousands of times a second. */
function overPace({ paces, requestPace }: Gateway, caller: ModelCaller): WireError | null {
  const pace = paces.get(caller) ?? new Bucket(requestPace);
  paces.set(caller, pace);
  if (pace.spend(1) <= 0) return null;
  // What is refused does not count, so that whoever waits as it was told is served.
  pace.spend(-1);
  return new WireError(
    'too_busy',
    `This sandbox makes more than ${requestPace.perSecond} model requests a second; try again a little later.`,
    1,
  );
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
    const given = hash('sha256', token, 'buffer');
    if (given.length === expected.length && timingSafeEqual(given, expected)) return;
  }
  throw new WireError(
    'token_invalid',
    "The sandbox's model token is missing or wrong: send it as x-api-key, x-goog-api-key or Authorization: Bearer.",
  );
}

function sendError(request: IncomingMessage, response: ServerResponse, wire: Wire, error: WireError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, body } = wireError(wire, error.code, error.message);
  if (error.retryAfterSeconds !== null) {
    response.setHeader('retry-after', error.retryAfterSeconds);
    // To refuse without end costs time too; new connections have a pace of their own, and wait outside.
    response.setHeader('connection', 'close');
  }
  if (request.complete) sendJson(response, status, body);
  else sendWhileReceiving(request, response, status, body);
}

const drainBytes = 128 * 1024 * 1024;
const drainMs = 5000;

/**
 * Answers a request whose body is still on its way. Closing at once would break the client's writing before it reads
 * the answer, so the rest is received and thrown away, within bounds, before the connection ends.
 */
function sendWhileReceiving(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  body: string,
): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  });
  response.write(body);
  let bytes = 0;
  const end = (): void => {
    clearTimeout(timer);
    request.off('data', count);
    response.end();
  };
  const count = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > drainBytes) end();
  };
  const timer = setTimeout(end, drainMs);
  request.on('data', count);
  request.once('end', end);
  request.once('close', end);
}

function sendJson(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}
