import type { AcpServer, AgentFactory } from '@agentclientprotocol/sdk/experimental/server';
import { limits } from '../../domain/limits.ts';
import { isTooDeep } from '../http/text.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import type { Connections, OpenConnection } from './connections.ts';

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
    return refusal(405, 'This path takes GET, POST and DELETE only.');
  }
  if (method === 'GET' && call.header('upgrade') !== undefined)
    return refusal(426, 'Send the upgrade to a WebSocket with its key and version.');
  const id = call.header(ID_HEADER);
  const body = method === 'POST' ? await call.bytes(limits.acpMessageBytes) : null;
  if (body && isTooDeep(body.toString('utf8')))
    return refusal(400, `The message is nested deeper than ${limits.jsonDepth} levels.`);
  if (body && !hasUsableId(body)) return refusal(400, 'id: must be a string, a whole number or null');
  // The connection's own signal ends a request that waits; the client is told nothing any more then.
  const request = new Request(call.request.url, {
    method,
    headers: call.request.headers,
    body: body as Buffer<ArrayBuffer> | null,
    signal: call.gone(),
  });
  if (id === undefined) return begin(call, request, acp, connections, createAgent);
  const connection = connections.find(id, caller.keyId, agent.id);
  if (!connection) return refusal(404, 'Unknown Acp-Connection-Id');
  const response = await asJson(await acp.handleRequest(request));
  if (method === 'GET' && response.status === 200) {
    connection.streams += 1;
    call.gone().addEventListener('abort', () => {
      connection.streams -= 1;
      connection.lastUsedMs = performance.now();
    });
  }
  return response;
}

/** JSON-RPC 2.0, section 4. What is no JSON, or no request, is told by the SDK. */
function hasUsableId(body: Buffer): boolean {
  let message: unknown;
  try {
    message = JSON.parse(body.toString('utf8'));
  } catch {
    return true;
  }
  if (typeof message !== 'object' || message === null || !('id' in message)) return true;
  const { id } = message;
  return id === null || typeof id === 'string' || Number.isSafeInteger(id);
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
  return asJson(response);
}

/** The SDK refuses in plain text; here every error is JSON. */
async function asJson(response: Response): Promise<Response> {
  if (response.status < 400 || response.headers.get('content-type')?.includes('json')) return response;
  return refusal(response.status, await response.text());
}

export function refusal(status: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code: -32600, message } }, { status });
}
