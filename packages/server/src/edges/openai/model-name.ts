import { DomainError } from '../../domain/errors.ts';
import type { Agent } from '../../domain/nouns.ts';
import { jsonResponse } from '../http/answer.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { seconds } from './ids.ts';

/** For clients that want a name that is the same for every agent. */
const alias = 'agent';

/** The agent is the model: by its id, its name, or `agent`. Throws `not_found` for any other. */
export function requireModel(agent: Agent, model: string): void {
  if (model === agent.id || model === agent.name || model === alias) return;
  const message = `There is no such model here; this address has "${agent.id}" alone.`;
  throw new DomainError('not_found', message, { details: [{ path: 'model', message }] });
}

function modelOf(agent: Agent) {
  return {
    id: agent.id,
    object: 'model',
    created: seconds(agent.createdAt),
    owned_by: 'berth',
    name: agent.name,
    description: agent.description,
  };
}

export async function listModels({ agent, head }: HostCall): Promise<Response> {
  return jsonResponse(200, JSON.stringify({ object: 'list', data: [modelOf(agent)] }), head);
}

export async function getModel({ agent, head }: HostCall, name: string): Promise<Response> {
  requireModel(agent, name);
  return jsonResponse(200, JSON.stringify(modelOf(agent)), head);
}
