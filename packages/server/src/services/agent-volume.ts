import { join } from 'node:path';
import { notFound } from '../domain/errors.ts';
import type { Agent } from '../domain/nouns.ts';
import type { SandboxDriver } from '../domain/ports/sandbox.ts';
import type { AgentStore } from '../store/agents.ts';

export interface AgentVolumeDependencies {
  agents: Pick<AgentStore, 'get'>;
  driver: Pick<SandboxDriver, 'prepareVolume'>;
  volumesDir: string;
  /** Ends and removes all that this host has of a deleted agent. Idempotent. */
  removeAgent(agentId: string): Promise<void>;
}

/**
 * The folder of an agent's files, made where there is none yet. The agent may be deleted meanwhile, and what is made after
 * its files were removed nobody else would ever remove: so it is looked for once more, and then that is done here.
 */
export async function agentVolume(deps: AgentVolumeDependencies, agent: Agent): Promise<string> {
  const volumeDir = join(deps.volumesDir, agent.id);
  await deps.driver.prepareVolume(volumeDir, agent.slot);
  if (await deps.agents.get(agent.id)) return volumeDir;
  await deps.removeAgent(agent.id);
  throw notFound();
}
