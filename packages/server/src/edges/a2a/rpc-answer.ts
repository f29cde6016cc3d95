import { JsonRpcTransportError } from '@a2a-js/sdk/errors';
import { jsonText } from '../../domain/large-json.ts';
import { textResponse } from '../http/answer.ts';
import type { RpcId } from '../http/json-rpc-id.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { failureOf, rpcErrorOf } from './errors.ts';

export interface RpcRequest {
  id: RpcId;
  method: string;
  params: unknown;
}

export function rpcError(code: number, message: string): JsonRpcTransportError {
  return new JsonRpcTransportError({ jsonrpc: '2.0', id: null, error: { code, message } });
}

export function rpcErrorText(call: HostCall, id: RpcRequest['id'], error: unknown): string {
  const failure = failureOf(error, call.requestId);
  if (failure.cause !== undefined)
    call.log.error('request failed', { requestId: call.requestId, cause: failure.cause });
  return JSON.stringify({ jsonrpc: '2.0', id, error: rpcErrorOf(failure) });
}

export async function rpcAnswer(call: HostCall, body: unknown): Promise<Response> {
  return textResponse(200, jsonText(call.caller, body), call.head);
}
