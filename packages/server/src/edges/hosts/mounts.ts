import { cardMount } from '../a2a/card-mount.ts';
import { keysUrl } from '../a2a/card.ts';
import { rpcMount } from '../a2a/json-rpc.ts';
import { restMount } from '../a2a/rest.ts';
import { acpMount } from '../acp/mount.ts';
import { agentCommunicationMount } from '../agent-communication/mount.ts';
import type { Edge } from '../http/edge.ts';
import { mcpMount } from '../mcp/mount.ts';
import { openaiMount } from '../openai/mount.ts';
import { webMount } from '../web/mount.ts';
import type { HostMount } from './host-edge.ts';

/** Everything that an agent's host serves, in the order in which they are asked. A new protocol adds one line here. */
export function hostMounts(edge: Edge): HostMount[] {
  return [
    cardMount(keysUrl(edge.addresses)),
    rpcMount(),
    restMount(),
    acpMount(),
    agentCommunicationMount(),
    openaiMount(),
    mcpMount(edge.log),
    // What is nobody else's.
    webMount(edge),
  ];
}
