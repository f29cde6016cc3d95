import { requireEdit, requireOrgBound } from '../../domain/access.ts';
import type { Caller, Services } from '../../services/api.ts';
import type { Route } from './route.ts';

/**
 * Called when a request's input is refused, before the caller is told so: what it may not see is not found, and what
 * it may not do is forbidden, whatever the input is. On good input the service finds the same by itself, so the good
 * case pays for no look-up here.
 */
export async function checkAccess(
  route: Route,
  services: Services,
  caller: Caller,
  params: Record<string, string>,
): Promise<void> {
  const parent =
    /^\/(?:v1\/)?(agents|conversations|runs|sandbox|channels|inbound-events|schedules|webhook-endpoints)\/\{(\w+)\}/.exec(
      route.path,
    );
  const id = parent ? params[parent[2]!]! : '';
  if (parent?.[1] === 'agents' || parent?.[1] === 'sandbox') await services.agents.get(caller, id);
  if (parent?.[1] === 'conversations') await services.conversations.get(caller, id);
  if (parent?.[1] === 'runs') await services.runs.get(caller, id);
  if (parent?.[1] === 'channels') await services.channels.get(caller, id);
  if (parent?.[1] === 'inbound-events') await services.inboundEvents.get(caller, id);
  if (parent?.[1] === 'schedules') await services.schedules.get(caller, id);
  if (parent?.[1] === 'webhook-endpoints') await services.webhookEndpoints.get(caller, id);
  if (route.access.endsWith('edit')) requireEdit(caller);
  if (route.access.startsWith('org-')) requireOrgBound(caller);
}
