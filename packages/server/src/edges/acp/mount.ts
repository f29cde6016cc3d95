import type { IncomingMessage } from 'node:http';
import { AcpServer } from '@agentclientprotocol/sdk/experimental/server';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { senderOf } from '../../domain/slices.ts';
import { hostKey } from '../hosts/credentials.ts';
import type { HostCall, HostMount, UpgradeCall } from '../hosts/host-edge.ts';
import { acpAgent } from './agent.ts';
import { assembly } from './assembly.ts';
import type { OpenConnection } from './connections.ts';
import { Connections } from './connections.ts';
import { requestError } from './errors.ts';
import { handleHttp } from './http.ts';
import { createSockets, guarded } from './socket.ts';

const PATH = '/acp';

/** The Agent Client Protocol at an agent's host: WebSocket and streamable HTTP at one path (docs/acp.md). */
export function acpMount(): HostMount {
  const connections = new Connections();
  const acp = new AcpServer({
    createAgent: () => {
      throw new Error('Each connection has an agent of its own.');
    },
    maxBufferedBytes: limits.acpUnreadBytes,
    maxOutputStallMs: limits.acpIdleMs,
    maxBufferedSessionStreams: limits.acpSessionsPerConnection,
    maxIdLength: limits.acpIdChars,
  });
  const ids = new WeakMap<IncomingMessage, string>();
  const sockets = createSockets((request) => ids.get(request));

  /** A request over HTTP was let in by its own key; what comes by a WebSocket is looked at here. */
  const createAgent =
    (call: HostCall | UpgradeCall, connection: OpenConnection, admit: () => Promise<void>) => () =>
      acpAgent({
        services: call.services,
        agent: call.agent,
        caller: call.caller,
        requestId: call.requestId,
        log: call.log,
        admit,
        onConnect(agent) {
          connection.agent = agent;
          agent.signal.addEventListener('abort', () => connections.remove(connection));
        },
      });

  return {
    name: 'acp',
    owns: (path) => path === PATH,
    handle: async (call) =>
      call.adopt(
        await handleHttp(call, acp, connections, (one, connection) =>
          createAgent(one, connection, async () => {}),
        ),
      ),
    refuse(error, requestId) {
      const { code, message, data } = requestError(error, requestId);
      return { body: { jsonrpc: '2.0', id: null, error: { code, message, data } } };
    },
    upgrade: {
      matches: (path) => path === PATH,
      async handle(call) {
        const { request, socket, firstBytes, caller, agent } = call;
        const connection = connections.open(caller.keyId, agent.id, true);
        const admit = () => admitMessage(call, () => connection.agent?.close());
        const prepared = acp.prepareWebSocketUpgrade({ createAgent: createAgent(call, connection, admit) });
        ids.set(request, prepared.connectionId);
        // Also when the upgrade itself is refused, since nobody is told of that.
        socket.once('close', () => {
          prepared.reject();
          connections.remove(connection);
        });
        sockets.handleUpgrade(request, socket, firstBytes, (websocket) => {
          const heard = assembly(websocket, socket, call.openBody);
          prepared.accept(guarded(websocket, senderOf(caller), heard));
        });
      },
      close: () => void acp.close().catch(() => undefined),
    },
  };
}

/** A revoked key's connection ends with its next word; one that asks too much is told so and may go on. */
async function admitMessage({ services, request }: UpgradeCall, close: () => void): Promise<void> {
  try {
    const { keyId, rateLimit } = await services.auth.authenticate(hostKey(request.headers));
    const { allowed, retryAfterSeconds } = services.rateLimit.take(keyId, rateLimit);
    if (allowed) return;
    throw new DomainError(
      'rate_limited',
      `This key has made too many requests; try again in ${retryAfterSeconds} s.`,
      {
        retryAfterSeconds,
      },
    );
  } catch (error) {
    if (error instanceof DomainError && error.code.startsWith('key_')) setImmediate(close);
    throw error;
  }
}
