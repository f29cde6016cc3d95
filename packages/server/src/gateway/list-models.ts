import type { ModelCaller } from '../domain/ports/model-gateway.ts';
import { splitModel } from './call.ts';
import type { Provider } from './provider.ts';
import type { Route } from './routes.ts';
import { WireError } from './wires.ts';

/**
 * Answers `GET …/models` and `GET …/models/<id>` in the shape of the wire: the agent's own model, since every other is
 * rewritten to it, then what the operator listed for the same provider. Nothing is asked of the provider.
 */
export function listModels(
  caller: ModelCaller,
  route: Route,
  providers: ReadonlyMap<string, Provider>,
): string {
  const agents = splitModel(caller.model);
  const isAgents = route.provider === null || route.provider === agents.provider;
  const listed = providers.get(route.provider ?? agents.provider)?.models ?? [];
  const names = [...new Set([...(isAgents ? [agents.name] : []), ...listed])];
  const ids = route.provider === null ? names.map((name) => `${agents.provider}/${name}`) : names;
  if (route.pathModel === null) return JSON.stringify(list(route, ids));
  const id = ids.find((each) => each === route.pathModel);
  if (id === undefined)
    throw new WireError('not_found', `There is no model "${route.pathModel}" for this agent.`);
  return JSON.stringify(entry(route, id));
}

function list(route: Route, ids: string[]): object {
  const entries = ids.map((id) => entry(route, id));
  if (route.wire === 'gemini') return { models: entries };
  if (route.wire !== 'anthropic') return { object: 'list', data: entries };
  return { data: entries, has_more: false, first_id: ids[0] ?? null, last_id: ids.at(-1) ?? null };
}

function entry(route: Route, id: string): object {
  if (route.wire === 'gemini') {
    const supportedGenerationMethods = ['generateContent', 'countTokens'];
    return { name: `models/${id}`, displayName: id, supportedGenerationMethods };
  }
  if (route.wire === 'anthropic')
    return { type: 'model', id, display_name: id, created_at: '1970-01-01T00:00:00Z' };
  return { id, object: 'model', created: 0, owned_by: route.provider ?? 'berth' };
}
