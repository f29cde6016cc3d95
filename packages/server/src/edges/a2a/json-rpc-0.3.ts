import { LegacyJsonRpcTransportHandler } from '@a2a-js/sdk/compat/v0_3/server';
import { ServerCallContext } from '@a2a-js/sdk/server';
import type { HostCall } from '../hosts/host-edge.ts';
import { checkLegacyParams } from './guard-0.3.ts';
import { TaskHandler } from './handler.ts';
import { legacyHandler } from './legacy-handler.ts';
import { rpcAnswer, rpcErrorText } from './rpc-answer.ts';
import type { RpcRequest } from './rpc-answer.ts';
import type { Framed } from './sse.ts';
import { streamAnswer } from './sse.ts';

/** JSON-RPC of A2A 0.3, by the SDK's layer over the same handler. */
export async function legacyRpc(call: HostCall, request: RpcRequest): Promise<Response> {
  const { id, method, params } = request;
  checkLegacyParams(method, params);
  const stop = new AbortController();
  const handler = new TaskHandler(call, '0.3', call.gone(stop));
  const transport = new LegacyJsonRpcTransportHandler(legacyHandler(handler, call.requestId));
  const answer = await transport.handle({ jsonrpc: '2.0', id, method, params }, new ServerCallContext());
  if (!(Symbol.asyncIterator in answer)) return rpcAnswer(call, answer);
  async function* framed(): AsyncGenerator<Framed, void, undefined> {
    for await (const data of answer as AsyncGenerator<unknown>) yield { seq: handler.seq, data };
  }
  return streamAnswer(
    call,
    framed(),
    () => stop.abort(),
    (error) => `data: ${rpcErrorText(call, id, error)}\n\n`,
  );
}
