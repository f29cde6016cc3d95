import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { a2aCapabilities } from '../../domain/a2a-capabilities.ts';
import { DomainError, notFound } from '../../domain/errors.ts';
import { newId } from '../../domain/ids.ts';
import type { Agent } from '../../domain/nouns.ts';
import { newHead } from '../http/answer.ts';
import type { Edge } from '../http/edge.ts';
import { errorResponse, errorResponseAs, presentable } from '../http/errors.ts';
import { admitKey } from '../http/gate.ts';
import { queryText } from '../http/request.ts';
import { answerSocket } from '../http/socket-answer.ts';
import type { Upgrade } from '../listener.ts';
import { agentUrl, grpcTarget } from '../present/agent.ts';
import { allowsOrigin } from './cors.ts';
import { hostKey } from './credentials.ts';
import type { HostMount, HostUpgrade, PublicUpgradeCall } from './host-edge.ts';
import { narrowed } from './serve-host.ts';

/** Connections that are taken over (WebSocket) at agents' hosts, under the same rules as requests. */
export function hostUpgrades(
  edge: Edge,
  mounts: readonly HostMount[],
  labelOf: (request: IncomingMessage) => string | null,
): Upgrade {
  const find = (path: string): { mount: HostMount; upgrade: HostUpgrade } | undefined => {
    const mount = mounts.find((one) => one.owns(path));
    return mount?.upgrade?.matches(path) ? { mount, upgrade: mount.upgrade } : undefined;
  };

  return {
    matches: (request) =>
      labelOf(request) !== null &&
      request.headers.upgrade?.toLowerCase() === 'websocket' &&
      find(pathOf(request)) !== undefined,

    async handle(request, socket, firstBytes) {
      const requestId = newId();
      const head = newHead(requestId);
      const path = pathOf(request);
      const { mount, upgrade } = find(path)!;
      socket.on('error', () => socket.destroy());
      try {
        await open(request, socket, firstBytes, { edge, mount, upgrade, path, requestId, head });
      } catch (error) {
        const failure = presentable(error, requestId);
        if (failure.code === 'internal')
          edge.log.error('request failed', { requestId, cause: failure.cause ?? failure });
        const query = queryText(request.url ?? '');
        const refusal = mount.refuse?.(failure, requestId, { path, query, header: headerOf(request) });
        const answer = refusal ? errorResponseAs(failure, head, refusal) : errorResponse(failure, head);
        await answerSocket(socket, answer);
      }
    },

    close() {
      for (const mount of mounts) mount.upgrade?.close();
    },
  };

  async function open(request: IncomingMessage, socket: Duplex, firstBytes: Buffer, asked: Opened) {
    const { mount, upgrade, path, requestId, head } = asked;
    await mount.prepare?.();
    const label = labelOf(request)!;
    const callOf = (agent: Agent): PublicUpgradeCall => ({
      agent,
      origin: agentUrl(agent.id, edge.addresses),
      grpcTarget: grpcTarget(agent.id, edge.addresses),
      a2aCapabilities: edge.addresses.a2aCapabilities ?? a2aCapabilities,
      path,
      query: queryText(request.url ?? ''),
      requestId,
      services: edge.services,
      log: edge.log,
      header: headerOf(request),
      head,
      request,
      socket,
      firstBytes,
      openBody: () => edge.flight.open(agent.orgId),
    });
    if (mount.isPublic && upgrade.handlePublic) {
      const agent = await edge.services.agents.find(label);
      if (agent && (await mount.isPublic('GET', path, agent))) return upgrade.handlePublic(callOf(agent));
    }
    const caller = await admitKey(
      edge,
      () => hostKey(request.headers),
      () => edge.proxies.clientAddress(request),
      head,
    );
    const agent = await edge.services.agents.get(caller, label);
    const call = callOf(agent);
    const { origin: asker } = request.headers;
    // A browser lets every page open a WebSocket anywhere, so that here it is the service that has to look.
    if (asker !== undefined && !allowsOrigin(agent.allowedOrigins, asker, call.origin))
      throw new DomainError('scope_insufficient', 'Pages of this origin may not speak to the agent.');
    if (socket.destroyed) throw notFound();
    await upgrade.handle({ ...call, caller: narrowed(caller, agent) });
  }
}

interface Opened {
  edge: Edge;
  mount: HostMount;
  upgrade: HostUpgrade;
  path: string;
  requestId: string;
  head: Record<string, string>;
}

function headerOf(request: IncomingMessage): (lowerName: string) => string | undefined {
  return (lowerName) => {
    const value = request.headers[lowerName];
    return Array.isArray(value) ? value.join(', ') : value;
  };
}

function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split(/[?#]/, 1)[0]!.replace(/^https?:\/\/[^/]*/i, '') || '/';
}
