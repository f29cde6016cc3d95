import type { IncomingMessage } from 'node:http';
import { WebSocketServer } from 'ws';
import { requireEdit } from '../../domain/access.ts';
import { isId, newId } from '../../domain/ids.ts';
import type { Log } from '../../domain/log.ts';
import type { Caller, Services, TerminalView } from '../../services/api.ts';
import { newHead } from '../http/answer.ts';
import { bearerToken } from '../http/bearer.ts';
import { errorResponse, presentable } from '../http/errors.ts';
import { admitKey } from '../http/gate.ts';
import { parseQuery } from '../http/query.ts';
import { queryText } from '../http/request.ts';
import { answerSocket } from '../http/socket-answer.ts';
import { invalidRequest, validate } from '../http/validate.ts';
import type { Upgrade } from '../listener.ts';
import { terminalQuery } from '../schemas/terminal.ts';
import { Connection } from './connection.ts';

export interface TerminalEdgeOptions {
  services: Pick<Services, 'auth' | 'agents' | 'rateLimit' | 'terminals'>;
  /** For the limit on failed authentication. */
  clientAddress: (request: IncomingMessage) => string;
  baseUrl: string;
  log: Log;
}

const pathPattern = /^\/sandbox\/([^/]+)\/terminal(?:\?|$)/;
const subprotocol = 'berth.terminal.v1';
/** A browser can set no header for a WebSocket, but offer subprotocols: the key stands in one that is not chosen. */
const keyPrefix = 'berth.key.';
const MESSAGE_MAX_BYTES = 64 * 1024;

/** `GET /sandbox/{agentId}/terminal` as a WebSocket (RFC 6455); docs/sandbox-api.md has the frames. */
export function createTerminalEdge(options: TerminalEdgeOptions): Upgrade {
  const { services, log } = options;
  const connections = new Set<Connection>();
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    // Compression holds memory for each connection, and what a terminal sends is small.
    perMessageDeflate: false,
    maxPayload: MESSAGE_MAX_BYTES,
    handleProtocols: (offered) => (offered.has(subprotocol) ? subprotocol : false),
  });

  async function openTerminal(
    caller: Caller,
    agentId: string,
    query: string,
  ): Promise<{ terminal: TerminalView; after: number }> {
    // What may not be seen is not found, whatever else is wrong.
    await services.agents.get(caller, agentId);
    requireEdit(caller);
    const { columns, rows, term, terminalId, after } = validate(terminalQuery, parseQuery(query), 'query');
    const terminal =
      terminalId === null
        ? await services.terminals.open(caller, agentId, { columns, rows, term })
        : await services.terminals.find(caller, agentId, terminalId);
    return { terminal, after };
  }

  return {
    matches: (request) =>
      pathPattern.test(request.url ?? '') && request.headers.upgrade?.toLowerCase() === 'websocket',

    async handle(request, socket, head) {
      const requestId = newId();
      const answerHead = newHead(requestId);
      socket.on('error', () => socket.destroy());
      try {
        const caller = await admitKey(
          { services },
          () => keyOf(request),
          () => options.clientAddress(request),
          answerHead,
        );
        checkOrigin(request, options.baseUrl);
        const id = pathPattern.exec(request.url!)![1]!;
        const { terminal, after } = await openTerminal(
          caller,
          isId(id) ? id : nowhere,
          queryText(request.url!),
        );
        if (socket.destroyed) return;
        server.handleUpgrade(request, socket, head, (websocket) => {
          const connection = new Connection(websocket, terminal, after);
          connections.add(connection);
          websocket.once('close', () => connections.delete(connection));
        });
      } catch (error) {
        const failure = presentable(error, requestId);
        if (failure.code === 'internal')
          log.error('request failed', { requestId, cause: failure.cause ?? failure });
        await answerSocket(socket, errorResponse(failure, answerHead));
      }
    },

    close() {
      for (const connection of connections) connection.end({ kind: 'closing' });
    },
  };
}

const nowhere = '00000000-0000-0000-0000-000000000000';

function keyOf(request: IncomingMessage): string | null {
  if (request.headers.authorization !== undefined) return bearerToken(request.headers.authorization);
  const offered = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((one) => one.trim());
  return offered.find((one) => one.startsWith(keyPrefix))?.slice(keyPrefix.length) ?? null;
}

/** A page of elsewhere has no business here, even with a key. Programs send no Origin. */
function checkOrigin(request: IncomingMessage, baseUrl: string): void {
  const { origin, host } = request.headers;
  if (origin === undefined) return;
  const own = [new URL(baseUrl).origin, `http://${host}`, `https://${host}`];
  if (own.includes(origin)) return;
  throw invalidRequest([{ path: 'Origin', message: 'must be that of the service' }]);
}
