import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Log } from '../domain/log.ts';
import type { ModelCaller, ModelGatewayHooks } from '../domain/ports/model-gateway.ts';
import type { Call } from './call.ts';
import { answerDemo } from './demo/answer.ts';
import { estimateMicros, tokensUsed, usageEntries } from './prices.ts';
import type { ModelPrice, Tokens } from './prices.ts';
import type { Route } from './routes.ts';
import { TokenScan } from './token-scan.ts';
import { sendUpstream } from './upstream.ts';
import type { Connections, Timeouts } from './upstream.ts';
import { WireError } from './wires.ts';

export interface MeterOptions {
  hooks: ModelGatewayHooks;
  log: Log;
  connections: Connections;
  timeouts: Timeouts;
}

export interface Exchange {
  caller: ModelCaller;
  route: Route;
  call: Call;
  request: IncomingMessage;
  response: ServerResponse;
  requestBytes: number;
}

/** Output tokens that are set aside when a request names no limit of its own. */
const assumedOutputTokens = 4096;

/**
 * Sets the estimate aside, makes the call, and reports what it used: once, or not at all when the provider answered
 * with an error or was not reached. Throws WireError when nothing was answered yet.
 */
export async function meteredCall(options: MeterOptions, exchange: Exchange): Promise<void> {
  const { caller, call, route, request, response } = exchange;
  options.hooks.onCall(caller, sessionOf(request));
  if (route.purpose === 'count') {
    await passThrough(options, exchange);
    return;
  }
  const price = call.provider.prices.get(call.model) ?? null;
  const maxOutput = route.purpose === 'generate' ? (call.maxOutputTokens ?? assumedOutputTokens) : 0;
  const estimate = estimateMicros(exchange.requestBytes, maxOutput, price);
  const reserved = await options.hooks.reserve(caller, estimate);
  if (!reserved.ok) throw new WireError('budget_exceeded', reserved.message);
  let isRecorded = false;
  try {
    // Whoever left while the budget was asked gets no call.
    if (response.destroyed) return;
    const report = (tokens: Tokens): void => {
      isRecorded = record(options, exchange, price, tokens, reserved.id);
    };
    if (call.provider.kind === 'demo') await answerDemo(exchange, report);
    else await passThrough(options, exchange, report);
  } finally {
    if (!isRecorded) reserved.release();
  }
}

/** Whether there was something to record, and it was taken. */
function record(
  options: MeterOptions,
  exchange: Exchange,
  price: ModelPrice | null,
  tokens: Tokens,
  reservationId: string | null,
): boolean {
  const { caller, call, request } = exchange;
  const entries = usageEntries(tokens, price);
  if (entries.length === 0) return false;
  const version = price === null ? 'unknown' : call.provider.priceVersion;
  try {
    options.hooks.onUsage(caller, {
      model: `${call.provider.name}/${call.model}`,
      sessionId: sessionOf(request),
      reservationId,
      entries,
      priceVersion: `${version}${tokens.isEstimated ? '+estimated' : ''}${call.usesOwnKey ? '+own-key' : ''}`,
    });
    return true;
  } catch (error) {
    options.log.error('usage was not recorded', { agentId: caller.agentId, error: String(error) });
    return false;
  }
}

function sessionOf(request: IncomingMessage): string | null {
  const session = request.headers['x-berth-session'];
  return typeof session === 'string' && /^[\x21-\x7e]{1,200}$/.test(session) ? session : null;
}

async function passThrough(
  options: MeterOptions,
  exchange: Exchange,
  report?: (tokens: Tokens) => void,
): Promise<void> {
  const { route, call, requestBytes } = exchange;
  let scan: TokenScan | null = null;
  const outcome = await sendUpstream(route, call, {
    connections: options.connections,
    timeouts: options.timeouts,
    incoming: exchange.request,
    response: exchange.response,
    onStart: (upstream) => {
      const isSse = (upstream.headers['content-type'] ?? '').includes('event-stream');
      scan = new TokenScan(route.wire, isSse);
    },
    onChunk: (chunk) => scan?.feed(chunk) ?? false,
  });
  // A client that leaves while the model still reads the prompt has used it all the same.
  const wasAbandoned = outcome.status === null && outcome.error === null;
  if (report && (scan !== null || wasAbandoned)) {
    const { counts, answerBytes } = scan ?? new TokenScan(route.wire, false);
    report(tokensUsed(route.wire, counts, { requestBytes, answerBytes, isComplete: outcome.isComplete }));
  }
  if (!outcome.error) return;
  options.log.warn('model provider failed', {
    provider: call.provider.name,
    status: outcome.status,
    code: outcome.error.code,
  });
  throw outcome.error;
}
