import { isCardPath, isRestPath, isRpcPath, keysUrl } from '../a2a/paths.ts';
import { agentCommunicationMount } from '../agent-communication/mount.ts';
import type { Edge } from '../http/edge.ts';
import { openaiMount } from '../openai/mount.ts';
import { webMount } from '../web/mount.ts';
import type { HostMount } from './host-edge.ts';
import { lazyMount } from './lazy-mount.ts';

/**
 * Everything that an agent's host serves, in the order in which they are asked. A new protocol adds one line here, a
 * lazy one when it comes with an SDK.
 */
export function hostMounts(edge: Edge): HostMount[] {
  return [
    lazyMount({
      name: 'a2a-card',
      owns: isCardPath,
      mayBePublic: true,
      load: async () => (await import('../a2a/card-mount.ts')).cardMount(keysUrl(edge.addresses)),
    }),
    lazyMount({
      name: 'a2a-json-rpc',
      owns: isRpcPath,
      load: async () => (await import('../a2a/json-rpc.ts')).rpcMount(),
    }),
    lazyMount({
      name: 'a2a-http',
      owns: isRestPath,
      load: async () => (await import('../a2a/rest.ts')).restMount(),
    }),
    lazyMount({
      name: 'acp',
      owns: (path) => path === '/acp',
      upgrades: (path) => path === '/acp',
      load: async () => (await import('../acp/mount.ts')).acpMount(),
    }),
    agentCommunicationMount(),
    openaiMount(),
    lazyMount({
      name: 'mcp',
      owns: (path) => path === '/mcp' || path === '/mcp/',
      load: async () => (await import('../mcp/mount.ts')).mcpMount(edge.log),
    }),
    // What is nobody else's.
    webMount(edge),
  ];
}
