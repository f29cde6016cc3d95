import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { DomainError, invalid, notFound } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { holdsKey } from '../../domain/holds-key.ts';
import type { Caller } from '../../services/api.ts';
import type { RateLimit } from '../../services/gcra.ts';
import type { Head } from '../http/answer.ts';
import type { Edge } from '../http/edge.ts';
import type { HostCall, HostMount, PublicCall, PublicUpgradeCall, UpgradeCall } from '../hosts/host-edge.ts';
import type { WebTimes } from './failures.ts';
import type { Forwarded } from './forward.ts';
import { forward } from './forward.ts';
import { createPublicRate, publicLimit } from './public-rate.ts';
import { tunnel } from './tunnel.ts';

/**
 * The agent's own web server, when its `agent.json` names one (docs/agent-web.md): everything at its address that no
 * protocol has. What is behind it is the agent's, and hostile.
 */
export function webMount(
  edge: Edge,
  times: WebTimes = { answerMs: limits.webAnswerMs, idleMs: limits.webIdleMs, closeMs: 1_000 },
  limit: RateLimit = publicLimit,
): HostMount {
  const { services } = edge;
  const tunnels = new Set<Duplex>();
  const takePublic = createPublicRate(limit);
  const isOpen = async (agentId: string | undefined) =>
    agentId !== undefined && (await services.agentWeb.of(agentId))?.public === true;

  function forwarded(call: PublicCall | PublicUpgradeCall, request: IncomingMessage, head: Head): Forwarded {
    const told = {
      origin: call.origin,
      clientAddress: edge.proxies.clientAddress(request),
      requestId: call.requestId,
      isKeyed: 'caller' in call,
    };
    // What stands in it would be in the logs of the agent's server for good.
    if (holdsKey(call.path) || holdsKey(call.query))
      throw invalid('url', 'must not hold a key of the service; send it in the Authorization header');
    const target = call.query === '' ? call.path : `${call.path}?${call.query}`;
    return { request, target, told, head, times, maxHeadBytes: limits.webHeadBytes };
  }

  async function answer(call: PublicCall | HostCall): Promise<Response> {
    if (!call.node) throw new DomainError('internal', 'There is no connection to hand on.');
    const { incoming, outgoing } = call.node;
    if (!('caller' in call)) takePublic(call.agent.id, edge.proxies.clientAddress(incoming));
    if (call.method === 'TRACE' || call.method === 'CONNECT') throw notFound();
    await forward(forwarded(call, incoming, call.head), outgoing, () =>
      services.agentWeb.connect(callerOf(call), call.agent.id),
    );
    return RESPONSE_ALREADY_SENT;
  }

  async function join(call: PublicUpgradeCall | UpgradeCall): Promise<void> {
    const { socket, firstBytes } = call;
    if (!('caller' in call)) takePublic(call.agent.id, edge.proxies.clientAddress(call.request));
    const given = forwarded(call, call.request, call.head);
    const connection = await services.agentWeb.connect(callerOf(call), call.agent.id);
    tunnels.add(socket);
    socket.once('close', () => tunnels.delete(socket));
    await tunnel(given, socket, firstBytes, connection);
  }

  return {
    name: 'web',
    owns: () => true,
    isPublic: (_method, _path, agent) => isOpen(agent?.id),
    handlePublic: answer,
    handle: answer,
    upgrade: {
      matches: () => true,
      handle: join,
      handlePublic: join,
      close() {
        for (const socket of tunnels) socket.destroy();
      },
    },
    ownCors: (agent) => isOpen(agent?.id),
  };
}

function callerOf(call: object): Caller | null {
  return 'caller' in call ? (call.caller as Caller) : null;
}
