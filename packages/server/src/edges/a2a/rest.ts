import {
  AgentCard,
  ListTaskPushNotificationConfigsResponse,
  ListTasksRequest,
  Message,
  SendMessageRequest,
  StreamResponse,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk';
import { DomainError } from '../../domain/errors.ts';
import { jsonText } from '../../domain/large-json.ts';
import type { HostCall, HostMount } from '../hosts/host-edge.ts';
import { readBody } from './body.ts';
import { failureOf, restErrorOf, VersionNotSupportedError } from './errors.ts';
import { checkGetTask, checkListTasks, checkPushConfig, checkSend } from './guard.ts';
import { TaskHandler } from './handler.ts';
import { listTasksJson } from './list-json.ts';
import { isRestPath, REST_PATH } from './paths.ts';
import { legacyErrorBody, legacyRest, legacyRestFailure } from './rest-0.3.ts';
import { streamAnswer } from './sse.ts';
import { versionOf } from './versions.ts';

const JSON_TYPE = 'application/json';
const A2A_TYPE = 'application/a2a+json';

interface Match {
  handler: TaskHandler;
  call: HostCall;
  /** The variable segments of the path. */
  ids: string[];
  query: Record<string, string>;
  stop: AbortController;
}

interface RestRoute {
  method: string;
  pattern: RegExp;
  run(match: Match): Promise<Response>;
}

/** A2A 1.0, section 11: HTTP+JSON. */
export function restMount(): HostMount {
  return {
    name: 'a2a-http',
    owns: isRestPath,
    handle,
    refuse: (error, requestId, { path, query, header }) => ({
      body: isLegacyRequest(path, query, header('a2a-version'))
        ? legacyErrorBody(error, requestId)
        : restErrorOf(failureOf(error, requestId)),
    }),
  };
}

/** Which form the errors of a request have that nothing but its head is known of. */
function isLegacyRequest(path: string, query: string, version: string | undefined): boolean {
  try {
    return path.startsWith(`${REST_PATH}/v1/`) && versionOf(version, query) === '0.3';
  } catch {
    return false;
  }
}

async function handle(call: HostCall): Promise<Response> {
  let isLegacy = false;
  try {
    const path = call.path.slice(REST_PATH.length);
    const version = versionOf(call.header('a2a-version'), call.query);
    isLegacy = version === '0.3' && path.startsWith('/v1/');
    if (isLegacy) return await legacyRest(call, path.slice('/v1'.length));
    const found = find(call.method, path);
    if (version === '0.3') {
      throw new VersionNotSupportedError(
        'This path is one of A2A 1.0; send the header "A2A-Version: 1.0". Those of 0.3 begin with /v1/.',
      );
    }
    const stop = new AbortController();
    const handler = new TaskHandler(call, '1.0', call.gone(stop));
    const query = Object.fromEntries(new URLSearchParams(call.query));
    return await found.route.run({ handler, call, ids: found.ids, query, stop });
  } catch (error) {
    return isLegacy ? legacyRestFailure(call, error) : restFailure(call, error);
  }
}

function find(method: string, path: string): { route: RestRoute; ids: string[] } {
  const allowed = new Set<string>();
  for (const route of restRoutes) {
    // With or without a tenant, an opaque name that a card may give; ours gives none.
    const match = route.pattern.exec(path) ?? route.pattern.exec(path.replace(/^\/[^/:]+(?=\/.)/, ''));
    if (!match) continue;
    if (route.method === method) return { route, ids: match.slice(1).map(decode) };
    allowed.add(route.method);
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

async function readSend(call: HostCall): Promise<SendMessageRequest> {
  const body = await readBody(call);
  checkSend(body);
  return SendMessageRequest.fromJSON(body);
}

async function answer(call: HostCall, body: unknown): Promise<Response> {
  const text = await jsonText(call.caller, body);
  call.head['Content-Type'] = A2A_TYPE;
  return new Response(text, { status: 200, headers: call.head });
}

function restStream(
  { call, handler, stop }: Match,
  responses: AsyncGenerator<StreamResponse, void, undefined>,
): Promise<Response> {
  async function* framed() {
    for await (const response of responses) yield { seq: handler.seq, data: StreamResponse.toJSON(response) };
  }
  const told = (error: unknown) =>
    `event: error\ndata: ${JSON.stringify(restErrorOf(logged(call, error)))}\n\n`;
  return streamAnswer(call, framed(), () => stop.abort(), told);
}

const subscribe = (match: Match) =>
  restStream(match, match.handler.resubscribe({ tenant: '', id: match.ids[0]! }));

export const restRoutes: RestRoute[] = [
  {
    method: 'POST',
    pattern: /^\/message:send$/,
    async run({ call, handler }) {
      const result = await handler.sendMessage(await readSend(call));
      return answer(
        call,
        'messageId' in result ? { message: Message.toJSON(result) } : { task: Task.toJSON(result) },
      );
    },
  },
  {
    method: 'POST',
    pattern: /^\/message:stream$/,
    run: async (match) => restStream(match, match.handler.sendMessageStream(await readSend(match.call))),
  },
  // The text says POST, the schema GET.
  { method: 'GET', pattern: /^\/tasks\/([^/]+):subscribe$/, run: subscribe },
  { method: 'POST', pattern: /^\/tasks\/([^/]+):subscribe$/, run: subscribe },
  {
    method: 'POST',
    pattern: /^\/tasks\/([^/]+):cancel$/,
    async run({ call, handler, ids }) {
      await readBody(call);
      return answer(
        call,
        Task.toJSON(await handler.cancelTask({ tenant: '', id: ids[0]!, metadata: undefined })),
      );
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/:]+)$/,
    async run({ call, handler, ids, query }) {
      checkGetTask({ id: ids[0], historyLength: query['historyLength'] });
      const { historyLength } = query;
      const length = historyLength === undefined ? {} : { historyLength: Number(historyLength) };
      return answer(call, Task.toJSON(await handler.getTask({ tenant: '', id: ids[0]!, ...length })));
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks$/,
    async run({ call, handler, query }) {
      checkListTasks(query);
      const { pageSize, historyLength, includeArtifacts, status, ...rest } = query;
      const withArtifacts = includeArtifacts === 'true';
      const request = ListTasksRequest.fromJSON({
        ...rest,
        includeArtifacts: withArtifacts,
        ...(status && { status }),
        ...(pageSize !== undefined && { pageSize: Number(pageSize) }),
        ...(historyLength !== undefined && { historyLength: Number(historyLength) }),
      });
      return answer(call, listTasksJson(await handler.listTasks(request), withArtifacts));
    },
  },
  {
    method: 'POST',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs$/,
    async run({ call, handler, ids }) {
      const body = await readBody(call);
      checkPushConfig(body);
      const config = TaskPushNotificationConfig.fromJSON({ ...body, taskId: ids[0] });
      return answer(
        call,
        TaskPushNotificationConfig.toJSON(await handler.createTaskPushNotificationConfig(config)),
      );
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs$/,
    async run({ call, handler, ids }) {
      const request = { tenant: '', taskId: ids[0]!, pageSize: 0, pageToken: '' };
      const list = await handler.listTaskPushNotificationConfigs(request);
      return answer(call, ListTaskPushNotificationConfigsResponse.toJSON(list));
    },
  },
  {
    method: 'GET',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs\/([^/]+)$/,
    async run({ call, handler, ids }) {
      const request = { tenant: '', taskId: ids[0]!, id: ids[1]! };
      const config = await handler.getTaskPushNotificationConfig(request);
      return answer(call, TaskPushNotificationConfig.toJSON(config));
    },
  },
  {
    method: 'DELETE',
    pattern: /^\/tasks\/([^/]+)\/pushNotificationConfigs\/([^/]+)$/,
    async run({ call, handler, ids }) {
      await handler.deleteTaskPushNotificationConfig({ tenant: '', taskId: ids[0]!, id: ids[1]! });
      return new Response(null, { status: 204, headers: call.head });
    },
  },
  {
    method: 'GET',
    pattern: /^\/extendedAgentCard$/,
    run: async ({ call, handler }) =>
      answer(call, AgentCard.toJSON(await handler.getAuthenticatedExtendedAgentCard())),
  },
];

function logged(call: HostCall, error: unknown) {
  const failure = failureOf(error, call.requestId);
  if (failure.cause !== undefined)
    call.log.error('request failed', { requestId: call.requestId, cause: failure.cause });
  return failure;
}

function restFailure(call: HostCall, error: unknown): Response {
  const failure = logged(call, error);
  call.head['Content-Type'] = JSON_TYPE;
  if (failure.retryAfterSeconds !== undefined) call.head['Retry-After'] = String(failure.retryAfterSeconds);
  return new Response(JSON.stringify(restErrorOf(failure)), {
    status: failure.httpStatus,
    headers: call.head,
  });
}
