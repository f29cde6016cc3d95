import type { ModelCaller } from '../domain/ports/model-gateway.ts';
import { WireError } from './wires.ts';
import { parseField, topLevelFields } from './json-fields.ts';
import type { FieldSpan } from './json-fields.ts';
import type { Provider } from './provider.ts';
import { Pace } from './slices.ts';
import type { Sliced } from '../domain/slices.ts';
import { refuseServerTools, refuseSharedState } from './refusals.ts';
import type { Route } from './routes.ts';
import { setField, splice } from './splice.ts';
import type { Edit } from './splice.ts';

/** A request after it was read and checked: what goes to the provider, and what is needed to count it. */
export interface Call {
  provider: Provider;
  /** The provider's key: the agent's own secret, else the operator's; null = none is needed. */
  key: string | null;
  usesOwnKey: boolean;
  /** Without the provider's name. */
  model: string;
  isStream: boolean;
  maxOutputTokens: number | null;
  /** The body in pieces: the caller's bytes, with what was put in between. */
  body: Buffer[];
  /** Names and values in the caller's body, at all its levels. */
  bodyValues: number;
}

/** Gemini's `generationConfig` may hold the schema of an answer. */
const maxConfigBytes = 256 * 1024;

/** Fields that decide something here, so that no second spelling of them may slip by. */
const watched = new Set([
  'model',
  'models',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'tools',
  'mcp_servers',
  'container',
  'web_search_options',
  'plugins',
  'previous_response_id',
  'conversation',
  'background',
  'prompt',
]);

/** Gemini names the model and the manner of answer in the path. */
const geminiWatched = new Set(['tools', 'cachedContent', 'generationConfig']);

/** Chooses provider, key and model, and makes the body to send; a large body is looked at in slices. Throws WireError. */
export function* prepareCall(
  caller: ModelCaller,
  route: Route,
  providers: ReadonlyMap<string, Provider>,
  body: Buffer,
): Sliced<Call> {
  const pace = new Pace();
  const fields = yield* topLevelFields(body, route.wire === 'gemini' ? geminiWatched : watched, pace);
  const bodyValues = pace.values;
  const asked = route.pathModel ?? modelField(body, fields);
  const target = chooseProvider(caller, route, providers, asked);
  const { provider, model } = target;
  const key = ownKey(caller, provider);
  if (provider.needsKey && key === null && provider.key === null) throw keyMissing(provider);
  if (key === null) refuseSharedState(body, fields);
  if (!provider.allowServerTools) yield* refuseServerTools(route.wire, body, fields, pace);

  const isStream =
    route.wire === 'gemini'
      ? route.operation === 'streamGenerateContent'
      : parseField(body, fields, 'stream') === true;
  const edits: Edit[] = [];
  if (route.wire !== 'gemini' && asked !== model)
    edits.push(setField(fields, 'model', JSON.stringify(model)));
  if (route.wire === 'openai-chat' && isStream && provider.asksForUsage)
    edits.push(...askForUsage(body, fields));
  return {
    provider,
    key: key ?? provider.key,
    usesOwnKey: key !== null,
    model,
    isStream,
    maxOutputTokens: maxOutput(body, fields),
    body: splice(body, edits),
    bodyValues,
  };
}

function modelField(body: Buffer, fields: Map<string, FieldSpan>): string | null {
  const model = parseField(body, fields, 'model');
  if (model === undefined) return null;
  if (typeof model !== 'string' || model === '')
    throw new WireError('bad_request', 'The field "model" must be a text.');
  return model;
}

/** Splits `<provider>/<model_name>`; a model's own name may hold slashes. */
export function splitModel(model: string): { provider: string; name: string } {
  const slash = model.indexOf('/');
  return { provider: model.slice(0, slash), name: model.slice(slash + 1) };
}

/**
 * Harnesses make side calls (titles, routing) to models of their own choice: on the operator's key they get the
 * agent's model instead. On the agent's own key, and for embeddings, which an agent's model cannot make, the named model
 * is used. Providers other than the agent's are open only on the agent's own key.
 */
function chooseProvider(
  caller: ModelCaller,
  route: Route,
  providers: ReadonlyMap<string, Provider>,
  asked: string | null,
): { provider: Provider; model: string } {
  const agents = splitModel(caller.model);
  let name = route.provider ?? agents.provider;
  let model = asked;
  if (route.provider === null && asked !== null) {
    const split = splitModel(asked);
    const named = providers.get(split.provider);
    if (named && (split.provider === agents.provider || ownKey(caller, named) !== null)) name = named.name;
  }
  if (model?.startsWith(`${name}/`)) model = model.slice(name.length + 1);

  const provider = providers.get(name);
  if (!provider) {
    throw new WireError(
      'not_found',
      `There is no model provider "${name}". There are: ${[...providers.keys()].join(', ')}.`,
    );
  }
  const isOwn = ownKey(caller, provider) !== null;
  if (name !== agents.provider) {
    if (isOwn && model) return { provider, model };
    throw new WireError(
      'forbidden',
      `This agent's model is ${caller.model}. To use the provider "${name}" as well, store its key as the agent's secret ${provider.keyVariable || '(this provider has none)'}.`,
    );
  }
  const keepsModel = model !== null && (isOwn || route.purpose === 'embed');
  return { provider, model: keepsModel && model ? model : agents.name };
}

function ownKey(caller: ModelCaller, provider: Provider): string | null {
  if (!provider.keyVariable || !Object.hasOwn(caller.secretKeys, provider.keyVariable)) return null;
  return caller.secretKeys[provider.keyVariable] || null;
}

function keyMissing(provider: Provider): WireError {
  return new WireError(
    'key_missing',
    `There is no key for the model provider "${provider.name}": set ${provider.keyVariable} in the service's environment, or store it as a secret of this agent.`,
  );
}

function maxOutput(body: Buffer, fields: Map<string, FieldSpan>): number | null {
  const config = parseField(body, fields, 'generationConfig', maxConfigBytes);
  if (typeof config === 'object' && config !== null && 'maxOutputTokens' in config) {
    return typeof config.maxOutputTokens === 'number' ? config.maxOutputTokens : null;
  }
  for (const field of ['max_completion_tokens', 'max_tokens', 'max_output_tokens']) {
    const value = parseField(body, fields, field);
    if (typeof value === 'number' && Number.isInteger(value) && value > 0) return value;
  }
  return null;
}

function askForUsage(body: Buffer, fields: Map<string, FieldSpan>): Edit[] {
  const options = parseField(body, fields, 'stream_options');
  const isObject = typeof options === 'object' && options !== null && !Array.isArray(options);
  if (isObject && 'include_usage' in options && options.include_usage === true) return [];
  const merged = { ...(isObject ? options : {}), include_usage: true };
  return [setField(fields, 'stream_options', JSON.stringify(merged))];
}
