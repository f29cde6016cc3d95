import { LegacyRestTransportHandler, toLegacyHTTPError } from '@a2a-js/sdk/compat/v0_3/server';
import { ServerCallContext } from '@a2a-js/sdk/server';
import { DomainError } from '../../domain/errors.ts';
import { jsonText } from '../../domain/large-json.ts';
import { textResponse } from '../http/answer.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { readBody } from './body.ts';
import { failureOf, legacyError } from './errors.ts';
import { checkLegacyParams, checkLegacySend } from './guard-0.3.ts';
import { checkGetTask } from './guard.ts';
import { TaskHandler } from './handler.ts';
import { legacyHandler } from './legacy-handler.ts';
import { pushConfigFromProto, pushConfigToProto, sendFromProto, toProto, wrapped } from './proto-json-0.3.ts';
import { streamAnswer } from './sse.ts';

type Json = Record<string, unknown>;
type SendParams = Parameters<LegacyRestTransportHandler['sendMessage']>[0];
type SetParams = Parameters<LegacyRestTransportHandler['setTaskPushNotificationConfig']>[0];

interface Match {
  call: HostCall;
  handler: TaskHandler;
  transport: LegacyRestTransportHandler;
  context: ServerCallContext;
  ids: string[];
  stop: AbortController;
}

interface LegacyRoute {
  method: string;
  pattern: RegExp;
  run(match: Match): Promise<Response>;
}

/** The HTTP+JSON binding of A2A 0.3, `path` without its `/v1`, by the SDK's layer over the same handler. */
export async function legacyRest(call: HostCall, path: string): Promise<Response> {
  const allowed = new Set<string>();
  for (const { method, pattern, run } of legacyRestRoutes) {
    const match = pattern.exec(path);
    if (!match) continue;
    allowed.add(method);
    if (method !== call.method) continue;
    const stop = new AbortController();
    const handler = new TaskHandler(call, '0.3', call.gone(stop));
    const transport = new LegacyRestTransportHandler(legacyHandler(handler, call.requestId));
    const context = new ServerCallContext();
    return run({ call, handler, transport, context, ids: match.slice(1).map(decode), stop });
  }
  if (allowed.size === 0) throw new DomainError('not_found', 'There is nothing here.');
  throw new DomainError('method_not_allowed', `This path takes ${[...allowed].join(', ')} only.`);
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** An error as 0.3 has it. */
export const legacyErrorBody = (error: unknown, requestId: string): unknown =>
  toLegacyHTTPError(legacyError(error, requestId));

export function legacyRestFailure(call: HostCall, error: unknown): Promise<Response> {
  const failure = failureOf(error, call.requestId);
  if (failure.cause !== undefined)
    call.log.error('request failed', { requestId: call.requestId, cause: failure.cause });
  if (failure.retryAfterSeconds !== undefined) call.head['Retry-After'] = String(failure.retryAfterSeconds);
  return answer(call, failure.httpStatus, legacyErrorBody(error, call.requestId));
}

async function answer(call: HostCall, status: number, body: unknown): Promise<Response> {
  return textResponse(status, jsonText(call.caller, body), call.head);
}

async function readSend(call: HostCall): Promise<SendParams> {
  const params = sendFromProto(await readBody(call));
  checkLegacySend(params);
  return params as unknown as SendParams;
}

function stream({ call, handler, stop }: Match, items: AsyncGenerator<unknown>): Promise<Response> {
  async function* framed() {
    for await (const item of items) yield { seq: handler.seq, data: wrapped(item as Json) };
  }
  const told = (error: unknown) =>
    `event: error\ndata: ${JSON.stringify(legacyErrorBody(error, call.requestId))}\n\n`;
  return streamAnswer(call, framed(), () => stop.abort(), told);
}

const subscribe = async (match: Match) =>
  stream(match, await match.transport.resubscribe(match.ids[0]!, match.context));

export const legacyRestRoutes: LegacyRoute[] = [
  {
    method: 'GET',
    pattern: /^\/card$/,
    run: async ({ call, transport, context }) =>
      answer(call, 200, await transport.getAuthenticatedExtendedAgentCard(context)),
  },
  {
    method: 'POST',
    pattern: /^\/message:send$/,
    async run({ call, transport, context }) {
      const result = await transport.sendMessage(await readSend(call), context);
      return answer(call, 200, wrapped(result as unknown as Json));
    },
  },
  {
    method: 'POST',
    pattern: /^\/message:stream$/,
    run: async (match) =>
      stream(match, await match.transport.sendMessageStream(await readSend(match.call), match.context)),
  },
  { method: 'GET', pattern: /^\/tasks\/([^/]+):subscribe$/, run: subscribe },
  { method: 'POST', pattern: /^\/tasks\/([^/]+):subscribe$/, run: subscribe },
  {
    method: 'POST',
    pattern: /^\/tasks\/([^/]+):cancel$/,
    async run({ call, transport, context, ids }) {
      await readBody(call);
      return answer(call, 200, toProto((await transport.cancelTask(ids[0]!, context)) as unknown as Json));
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/:]+)$/,
    async run({ call, transport, context, ids }) {
      const query = new URLSearchParams(call.query);
      const length = query.get('historyLength') ?? query.get('history_length') ?? undefined;
      checkGetTask({ id: ids[0], historyLength: length });
      return answer(
        call,
        200,
        toProto((await transport.getTask(ids[0]!, context, length)) as unknown as Json),
      );
    },
  },
  {
    method: 'POST',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs$/,
    async run({ call, transport, context, ids }) {
      const params = { taskId: ids[0]!, pushNotificationConfig: pushConfigFromProto(await readBody(call)) };
      checkLegacyParams('tasks/pushNotificationConfig/set', params);
      const config = await transport.setTaskPushNotificationConfig(params as unknown as SetParams, context);
      return answer(call, 201, pushConfigToProto(config as unknown as Json));
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs$/,
    async run({ call, transport, context, ids }) {
      const configs = await transport.listTaskPushNotificationConfigs(ids[0]!, context);
      return answer(call, 200, {
        configs: configs.map((config) => pushConfigToProto(config as unknown as Json)),
      });
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs\/([^/]+)$/,
    async run({ call, transport, context, ids }) {
      const config = await transport.getTaskPushNotificationConfig(ids[0]!, ids[1]!, context);
      return answer(call, 200, pushConfigToProto(config as unknown as Json));
    },
  },
  {
    method: 'DELETE',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs\/([^/]+)$/,
    async run({ call, transport, context, ids }) {
      await transport.deleteTaskPushNotificationConfig(ids[0]!, ids[1]!, context);
      return new Response(null, { status: 204, headers: call.head });
    },
  },
];
