import {
  AgentCard,
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTaskPushNotificationConfigsResponse,
  ListTasksRequest,
  Message,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk';
import { A2A_ERROR_CODE } from '@a2a-js/sdk/errors';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { answerId, rpcId } from '../http/json-rpc-id.ts';
import { statusOf } from '../http/status.ts';
import type { HostCall, HostMount } from '../hosts/host-edge.ts';
import { failureOf, rpcErrorOf } from './errors.ts';
import { rpcAnswer, rpcError, rpcErrorText } from './rpc-answer.ts';
import type { RpcRequest } from './rpc-answer.ts';
import {
  checkGetTask,
  checkListTasks,
  checkPushConfig,
  checkSend,
  checkTaskId,
  checkTaskScoped,
  isRecord,
} from './guard.ts';
import { TaskHandler } from './handler.ts';
import { legacyRpc } from './json-rpc-0.3.ts';
import { listTasksJson } from './list-json.ts';
import { isRpcPath } from './paths.ts';
import { streamAnswer } from './sse.ts';
import type { Framed } from './sse.ts';
import { versionOf } from './versions.ts';

type Unary = (handler: TaskHandler, params: unknown) => Promise<unknown>;

/** A2A 1.0, section 9: JSON-RPC 2.0 over HTTP. */
export function rpcMount(): HostMount {
  return {
    name: 'a2a-json-rpc',
    owns: isRpcPath,
    handle,
    refuse: (error, requestId) => ({
      body: { jsonrpc: '2.0', id: null, error: rpcErrorOf(failureOf(error, requestId)) },
    }),
  };
}

async function handle(call: HostCall): Promise<Response> {
  let id: RpcRequest['id'] = null;
  let isRead = false;
  try {
    if (call.method !== 'POST') {
      call.head['Allow'] = 'POST';
      throw new DomainError('method_not_allowed', 'JSON-RPC is sent by POST.');
    }
    const request = readRequest(
      await call.json({
        maxBytes: limits.a2aBodyBytes,
        mediaTypes: ['application/a2a+json'],
        onRead(body) {
          isRead = true;
          id = answerId(body);
        },
      }),
    );
    const version = versionOf(call.header('a2a-version'), call.query);
    return version === '0.3' ? await legacyRpc(call, request) : await dispatch(call, request);
  } catch (error) {
    // There were no parameters yet that could be wrong (JSON-RPC 2.0, section 5.1).
    const isInvalid = !isRead && error instanceof DomainError && error.code === 'invalid_request';
    return rpcFailure(call, id, isInvalid ? rpcError(A2A_ERROR_CODE.INVALID_REQUEST, error.message) : error);
  }
}

/** JSON-RPC 2.0, section 4. */
function readRequest(body: unknown): RpcRequest {
  if (!isRecord(body))
    throw rpcError(A2A_ERROR_CODE.INVALID_REQUEST, 'A request is one JSON object; batches are not taken.');
  const { jsonrpc, method, params } = body;
  const id = rpcId(body['id'] ?? null);
  if (jsonrpc !== '2.0') throw rpcError(A2A_ERROR_CODE.INVALID_REQUEST, 'jsonrpc must be "2.0".');
  if (id === undefined)
    throw rpcError(A2A_ERROR_CODE.INVALID_REQUEST, 'id must be a text or a whole number.');
  if (typeof method !== 'string' || method === '')
    throw rpcError(A2A_ERROR_CODE.INVALID_REQUEST, 'method must be a text.');
  return { id, method, params };
}

const checkedSend = (params: unknown): SendMessageRequest => {
  checkSend(params);
  return SendMessageRequest.fromJSON(params as object);
};

const unary: Record<string, Unary> = {
  async SendMessage(handler, params) {
    const result = await handler.sendMessage(checkedSend(params));
    return 'messageId' in result ? { message: Message.toJSON(result) } : { task: Task.toJSON(result) };
  },
  async GetTask(handler, params) {
    checkGetTask(params);
    return Task.toJSON(await handler.getTask(GetTaskRequest.fromJSON(params as object)));
  },
  async ListTasks(handler, params) {
    checkListTasks(params);
    const request = ListTasksRequest.fromJSON(params as object);
    return listTasksJson(await handler.listTasks(request), request.includeArtifacts ?? false);
  },
  async CancelTask(handler, params) {
    checkTaskId(params);
    return Task.toJSON(await handler.cancelTask(CancelTaskRequest.fromJSON(params as object)));
  },
  async CreateTaskPushNotificationConfig(handler, params) {
    checkTaskScoped(params, false);
    checkPushConfig(params);
    const config = TaskPushNotificationConfig.fromJSON(params as object);
    return TaskPushNotificationConfig.toJSON(await handler.createTaskPushNotificationConfig(config));
  },
  async GetTaskPushNotificationConfig(handler, params) {
    checkTaskScoped(params, true);
    const request = GetTaskPushNotificationConfigRequest.fromJSON(params as object);
    return TaskPushNotificationConfig.toJSON(await handler.getTaskPushNotificationConfig(request));
  },
  async ListTaskPushNotificationConfigs(handler, params) {
    checkTaskScoped(params, false);
    const request = ListTaskPushNotificationConfigsRequest.fromJSON(params as object);
    return ListTaskPushNotificationConfigsResponse.toJSON(
      await handler.listTaskPushNotificationConfigs(request),
    );
  },
  async DeleteTaskPushNotificationConfig(handler, params) {
    checkTaskScoped(params, true);
    const request = DeleteTaskPushNotificationConfigRequest.fromJSON(params as object);
    await handler.deleteTaskPushNotificationConfig(request);
    return null;
  },
  async GetExtendedAgentCard(handler) {
    return AgentCard.toJSON(await handler.getAuthenticatedExtendedAgentCard());
  },
};

async function dispatch(call: HostCall, { id, method, params }: RpcRequest): Promise<Response> {
  const isStream = method === 'SendStreamingMessage' || method === 'SubscribeToTask';
  const operation = Object.hasOwn(unary, method) ? unary[method] : undefined;
  if (!isStream && !operation) throw rpcError(A2A_ERROR_CODE.METHOD_NOT_FOUND, 'There is no such method.');
  if (params !== undefined && !isRecord(params))
    throw rpcError(A2A_ERROR_CODE.INVALID_PARAMS, 'params must be an object.');
  const stop = new AbortController();
  const handler = new TaskHandler(call, '1.0', call.gone(stop));
  if (operation)
    return rpcAnswer(call, { jsonrpc: '2.0', id, result: await operation(handler, params ?? {}) });
  let responses: AsyncGenerator<StreamResponse, void, undefined>;
  if (method === 'SendStreamingMessage') responses = handler.sendMessageStream(checkedSend(params ?? {}));
  else {
    checkTaskId(params ?? {});
    responses = handler.resubscribe(SubscribeToTaskRequest.fromJSON(params as object));
  }
  async function* framed(): AsyncGenerator<Framed, void, undefined> {
    for await (const response of responses)
      yield { seq: handler.seq, data: { jsonrpc: '2.0', id, result: StreamResponse.toJSON(response) } };
  }
  return streamAnswer(
    call,
    framed(),
    () => stop.abort(),
    (error) => `data: ${rpcErrorText(call, id, error)}\n\n`,
  );
}

/** An answer to the call itself is 200 (JSON-RPC over HTTP); what keeps it from being read has its own status. */
function rpcFailure(call: HostCall, id: RpcRequest['id'], error: unknown): Response {
  const failure = failureOf(error, call.requestId);
  const isTransport =
    error instanceof DomainError &&
    [
      'method_not_allowed',
      'body_too_large',
      'unsupported_media_type',
      'rate_limited',
      'unavailable',
    ].includes(error.code);
  call.head['Content-Type'] = 'application/json';
  if (failure.retryAfterSeconds !== undefined) call.head['Retry-After'] = String(failure.retryAfterSeconds);
  const status = isTransport ? statusOf[error.code] : failure.cause === undefined ? 200 : 500;
  return new Response(rpcErrorText(call, id, error), { status, headers: call.head });
}
