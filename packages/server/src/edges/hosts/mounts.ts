import { acpMount } from '../acp/mount.ts';
import type { Edge } from '../http/edge.ts';
import { openaiMount } from '../openai/mount.ts';
import type { HostMount } from './host-edge.ts';

/** Everything that an agent's host serves, in the order in which they are asked. A new protocol adds one line here. */
export function hostMounts(_edge: Edge): HostMount[] {
  return [acpMount(), openaiMount()];
}
