import { isUtf8 } from 'node:buffer';
import type { AcpServer, AgentFactory } from '@agentclientprotocol/sdk/experimental/server';
import { limits } from '../../domain/limits.ts';
import { bySize } from '../../domain/slices.ts';
import type { RpcId } from '../http/json-rpc-id.ts';
import { requireJson } from '../http/body.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import type { Connections, OpenConnection } from './connections.ts';
import { isRefusal, readMessage, refusal, type Incoming, type Refusal } from './incoming.ts';

const ID_HEADER = 'acp-connection-id';

/**
 * The streamable HTTP of the Agent Client Protocol: messages by POST, streams of server-sent events by GET, the end by
 * DELETE. The SDK speaks it; who may use which connection, and for how long, is seen to here.
 */
export async function handleHttp(
  call: HostCall,
  acp: AcpServer,
  connections: Connections,
  createAgent: (call: HostCall, connection: OpenConnection) => AgentFactory,
): Promise<Response> {
  const { method, caller, agent } = call;
  if (method !== 'GET' && method !== 'POST' && method !== 'DELETE') {
    call.head['Allow'] = 'GET, POST, DELETE';
    return refused(405, refusal('request', 'This path takes GET, POST and DELETE only.'));
  }
  if (method === 'GET' && call.header('upgrade') !== undefined)
    return refused(426, refusal('request', 'Send the upgrade to a WebSocket with its key and version.'));
  const sent = method === 'POST' ? await readSent(call) : null;
  if (sent && isRefusal(sent.read)) return refused(400, sent.read);
  const id = sent?.read.id ?? null;
  // The connection's own signal ends a request that waits; the client is told nothing any more then.
  const request = new Request(call.request.url, {
    method,
    headers: call.request.headers,
    body: sent?.body ?? null,
    signal: call.gone(),
  });
  const connectionId = call.header(ID_HEADER);
  if (connectionId === undefined)
    return asJson(await begin(call, request, acp, connections, createAgent), id);
  const connection = connections.find(connectionId, caller.keyId, agent.id);
  if (!connection) return refused(404, refusal('request', 'Unknown Acp-Connection-Id', id));
  const response = await asJson(await acp.handleRequest(request), id);
  if (method === 'GET' && response.status === 200) {
    connection.streams += 1;
    call.gone().addEventListener('abort', () => {
      connection.streams -= 1;
      connection.lastUsedMs = performance.now();
    });
  }
  return response;
}

/** The message of a request, as it came and as it was understood. */
async function readSent(call: HostCall): Promise<{ body: Buffer<ArrayBuffer>; read: Incoming | Refusal }> {
  requireJson(call.header('content-type'), call.header('content-encoding'), []);
  const body = (await call.bytes(limits.acpMessageBytes)) as Buffer<ArrayBuffer>;
  if (!isUtf8(body)) return { body, read: refusal('parse', 'The body is not valid UTF-8.') };
  const read = await bySize(call.caller.keyId, body.length, readMessage(body.toString('utf8')));
  return { body, read };
}

/** Only `initialize` needs no connection: it makes one. */
async function begin(
  call: HostCall,
  request: Request,
  acp: AcpServer,
  connections: Connections,
  createAgent: (call: HostCall, connection: OpenConnection) => AgentFactory,
): Promise<Response> {
  const connection = connections.open(call.caller.keyId, call.agent.id, false);
  const response = await acp.handleRequest(request, { createAgent: createAgent(call, connection) });
  const id = response.headers.get(ID_HEADER);
  if (id === null) connections.remove(connection);
  else connections.name(connection, id);
  return response;
}

/** The SDK refuses in plain text; here every error is JSON, and says which request it is about. */
async function asJson(response: Response, id: RpcId): Promise<Response> {
  if (response.status < 400 || response.headers.get('content-type')?.includes('json')) return response;
  return refused(response.status, refusal('request', await response.text(), id));
}

function refused(status: number, answer: Refusal): Response {
  return Response.json(answer, { status });
}
