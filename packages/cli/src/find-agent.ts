import { everyItem, type Agent } from '@berth/sdk';
import { UsageError, type Context } from './command.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** An agent by its id, or by its name when exactly one has it. */
export async function findAgent(context: Context, nameOrId: string): Promise<Agent> {
  if (UUID.test(nameOrId)) return context.client.agents.get(nameOrId.toLowerCase());
  const found: Agent[] = [];
  for await (const agent of everyItem(context.client.agents.list))
    if (agent.name === nameOrId) found.push(agent);
  if (found.length === 1) return found[0]!;
  if (found.length === 0) throw new UsageError(`no agent is named "${nameOrId}"; see: berth agents list`);
  throw new UsageError(
    `${found.length} agents are named "${nameOrId}"; use an id: ${found.map((a) => a.id).join(', ')}`,
  );
}
