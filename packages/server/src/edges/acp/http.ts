import type { AcpServer, AgentFactory } from '@agentclientprotocol/sdk/experimental/server';
import { limits } from '../../domain/limits.ts';
import { bySize, senderOf } from '../../domain/slices.ts';
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
  const body = method === 'POST' ? await bytesOf(call) : null;
  // The connection's own signal ends a request that waits; the client is told nothing any more then.
  const gone = call.gone();
  const connectionId = call.header(ID_HEADER);
  if (connectionId === undefined) {
    const read = await readSent(call, body, gone);
    if (read && isRefusal(read)) return refused(400, read);
    const request = requestOf(call, read, gone);
    return asJson(await begin(call, request, acp, connections, createAgent), read?.id ?? null);
  }
  const connection = connections.find(connectionId, caller.keyId, agent.id);
  if (method === 'GET') {
    if (!connection) return unknownConnection(null);
    return follow(await asJson(await acp.handleRequest(requestOf(call, null, gone)), null), connection, gone);
  }
  if (!connection) {
    const read = await readSent(call, body, gone);
    return read && isRefusal(read) ? refused(400, read) : unknownConnection(read?.id ?? null);
  }
  return inOrder(connection, acp, call, body, gone);
}

/** What is small and comes behind what is large does not overtake it. */
function inOrder(
  connection: OpenConnection,
  acp: AcpServer,
  call: HostCall,
  body: Buffer | null,
  gone: AbortSignal,
): Promise<Response> {
  const forward = async (tell: (response: Promise<Response> | Response) => void): Promise<void> => {
    const read = await readSent(call, body, gone);
    if (read && isRefusal(read)) return tell(refused(400, read));
    const response = acp.handleRequest(requestOf(call, read, gone));
    tell(response.then((one) => asJson(one, read?.id ?? null)));
    // The agent has it by then, unless it has too much to say that nobody reads: a cancel need not wait for that.
    await new Promise((resolve) => setImmediate(resolve));
  };
  return new Promise((resolve, reject) => {
    connection.order.add(() => forward(resolve).catch(reject));
  });
}

function follow(response: Response, connection: OpenConnection, gone: AbortSignal): Response {
  if (response.status !== 200) return response;
  connection.streams += 1;
  gone.addEventListener('abort', () => {
    connection.streams -= 1;
    connection.lastUsedMs = performance.now();
  });
  return response;
}

function bytesOf(call: HostCall): Promise<Buffer> {
  requireJson(call.header('content-type'), call.header('content-encoding'), []);
  return call.bytes(limits.acpMessageBytes);
}

/** The message of a request; null when it has none. */
async function readSent(
  { caller, hold }: HostCall,
  body: Buffer | null,
  gone: AbortSignal,
): Promise<Incoming | Refusal | null> {
  return body && bySize(senderOf(caller, gone), body.length, readMessage(body, hold));
}

/** What the SDK is asked. It takes the message as it was read here, in turns with others, and reads it no second time. */
function requestOf(call: HostCall, read: Incoming | null, signal: AbortSignal): Request {
  const { url, headers } = call.request;
  const request = new Request(url, { method: call.method, headers, signal });
  if (read) Object.defineProperty(request, 'json', { value: async () => read.message });
  return request;
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

const unknownConnection = (id: RpcId): Response =>
  refused(404, refusal('request', 'Unknown Acp-Connection-Id', id));

function refused(status: number, answer: Refusal): Response {
  return Response.json(answer, { status });
}
