import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { DomainError } from '../../domain/errors.ts';
import type { Log } from '../../domain/log.ts';
import { errorResponseAs } from '../http/errors.ts';
import { jsonResponse } from '../http/answer.ts';
import { answerId, type RpcId } from '../http/json-rpc-id.ts';
import { allowsOrigin } from '../hosts/cors.ts';
import type { HostCall, HostMount, Refusal } from '../hosts/host-edge.ts';
import { nothingElse, registerNothingElse } from './nothing-else.ts';
import { wrongParams } from './request.ts';
import { settled } from './settled.ts';
import { registerTools } from './tools.ts';

/** The service's own version says nothing of a protocol; it is there because the protocol wants one. */
const version = '1';
/** JSON-RPC 2.0, section 5.1. */
const INVALID_PARAMS = -32_602;

/**
 * The agent as a server of the Model Context Protocol at `/mcp` (docs/mcp.md): revision 2026-07-28, and the stateless form
 * of 2025-11-25 and older. Nothing is kept between requests, so that every replica can answer each of them.
 */
export function mcpMount(log: Log): HostMount {
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const { call } = authInfo!.extra as { call: HostCall };
      const { agent } = call;
      const server = new McpServer(
        { name: agent.name, version },
        {
          instructions:
            `${agent.description}\nThe tool send_message speaks to the agent "${agent.name}".`.trim(),
          // What an agent offers never changes while it is connected to.
          capabilities: { tools: { listChanged: false }, ...nothingElse },
        },
      );
      registerTools(server, call);
      registerNothingElse(server);
      return server;
    },
    { onerror: (error) => log.debug('A request of MCP was refused.', { error: error.message }) },
  );

  return {
    name: 'mcp',
    owns: (path) => path === '/mcp' || path === '/mcp/',
    refuse: (error) => refusal(error, null),
    async handle(call) {
      checkOrigin(call);
      const request = new Request(call.origin + call.path, {
        method: call.method,
        headers: call.request.headers,
        signal: call.gone(),
      });
      // The key was checked already, and is not handed on.
      const authInfo = {
        token: '',
        clientId: call.caller.keyId,
        scopes: [call.caller.scope],
        extra: { call },
      };
      let id: RpcId = null;
      const onRead = (body: unknown) => (id = answerId(body));
      let body: { parsedBody?: unknown } = {};
      try {
        if (call.method === 'POST') body = { parsedBody: await call.json({ onRead }) };
      } catch (error) {
        if (!(error instanceof DomainError)) throw error;
        return errorResponseAs(error, call.head, refusal(error, id));
      }
      const wrong = id === null ? null : wrongParams(body.parsedBody);
      if (wrong) return jsonResponse(200, JSON.stringify(refusal(wrong, id, INVALID_PARAMS).body), call.head);
      const response = await handler.fetch(request, { authInfo, ...body });
      return call.adopt(isToolCall(body.parsedBody) ? await settled(response) : response);
    },
  };
}

const isToolCall = (body: unknown): boolean =>
  typeof body === 'object' && body !== null && 'method' in body && body.method === 'tools/call';

/**
 * Programs send no Origin; a page is heard when the agent's owner allows its origin (MCP, streamable HTTP: "servers MUST
 * validate the Origin header"). The Host was what led here.
 */
function checkOrigin(call: HostCall): void {
  const asker = call.header('origin');
  if (asker === undefined || allowsOrigin(call.agent.allowedOrigins, asker, call.origin)) return;
  throw new DomainError(
    'scope_insufficient',
    'Pages of this origin may not speak to the agent; its owner can allow it (allowedOrigins).',
  );
}

/** JSON-RPC 2.0, section 5: what comes before the request could be read has no id. */
function refusal(error: DomainError, id: RpcId, code = rpcCode(error)): Refusal {
  const data = { code: error.code, ...(error.details && { details: error.details }) };
  return {
    body: { jsonrpc: '2.0', id, error: { code, message: error.message, data } },
  };
}

function rpcCode(error: DomainError): number {
  if (error.code === 'invalid_json') return -32_700;
  if (error.code === 'internal') return -32_603;
  return error.code === 'invalid_request' ? -32_600 : -32_000;
}
