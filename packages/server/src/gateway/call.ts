import type { ModelCaller } from '../domain/ports/model-gateway.ts';
import { WireError } from './wires.ts';
import type { Wire } from './wires.ts';
import { arrayElements, parseField, topLevelFields } from './json-fields.ts';
import type { FieldSpan } from './json-fields.ts';
import type { Provider } from './providers.ts';
import type { Route } from './routes.ts';

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
}

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
  'generationconfig',
]);

/** Chooses provider, key and model, and makes the body to send. Throws WireError. */
export function prepareCall(
  caller: ModelCaller,
  route: Route,
  providers: ReadonlyMap<string, Provider>,
  body: Buffer,
): Call {
  const fields = topLevelFields(body, route.wire === 'gemini' ? geminiWatched : watched);
  const asked = route.pathModel ?? modelField(body, fields);
  const target = chooseProvider(caller, route, providers, asked);
  const { provider, model } = target;
  const key = ownKey(caller, provider);
  if (provider.needsKey && key === null && provider.key === null) throw keyMissing(provider);
  refuseSharedState(body, fields, key !== null);
  if (!provider.allowServerTools) refuseServerTools(route.wire, body, fields);

  const isStream =
    route.wire === 'gemini'
      ? route.operation === 'streamGenerateContent'
      : parseField(body, fields.get('stream')) === true;
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
  };
}

const geminiWatched = new Set(['tools']);

function modelField(body: Buffer, fields: Map<string, FieldSpan>): string | null {
  const model = parseField(body, fields.get('model'));
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

/** Under a shared key, what a provider keeps between requests could be another tenant's. */
function refuseSharedState(body: Buffer, fields: Map<string, FieldSpan>, isOwnKey: boolean): void {
  const refuse = (field: string): WireError =>
    new WireError(
      'forbidden',
      `The field "${field}" is not open on the service's key: send the whole conversation each time.`,
    );
  const isSet = (field: string): boolean => {
    const span = fields.get(field);
    return (
      span !== undefined &&
      span.end - span.start > 0 &&
      !/^(?:null|false)$/.test(body.toString('latin1', span.start, Math.min(span.end, span.start + 8)))
    );
  };
  if (isOwnKey) return;
  for (const field of ['previous_response_id', 'conversation', 'background', 'prompt', 'container']) {
    if (isSet(field)) throw refuse(field);
  }
  if (isSet('models'))
    throw new WireError('forbidden', 'The field "models" is not open on the service\'s key.');
}

/** Types of tools that run in the harness. Any other runs at the provider. */
const localTools: Record<Exclude<Wire, 'gemini'>, RegExp> = {
  anthropic: /^(?:custom|(?:bash|text_editor|computer|memory|tool_search_tool)_.*)$/,
  'openai-chat': /^(?:function|custom)$/,
  'openai-responses':
    /^(?:function|custom|local_shell|shell|apply_patch|computer_use_preview|namespace|tool_search)$/,
};

/** A provider's own tools reach the internet and other accounts past the sandbox's rules, and are billed apart. */
function refuseServerTools(wire: Wire, body: Buffer, fields: Map<string, FieldSpan>): void {
  const refuse = (what: string): WireError =>
    new WireError(
      'forbidden',
      `${what} runs at the model provider, outside of the sandbox, and is not open here (allowServerTools, docs/models.md).`,
    );
  for (const field of ['mcp_servers', 'web_search_options', 'plugins']) {
    if (fields.has(field)) throw refuse(`"${field}"`);
  }
  const span = fields.get('tools');
  for (const element of span ? (arrayElements(body, span) ?? []) : []) {
    const tool = topLevelFields(body.subarray(element.start, element.end), new Set(['type']));
    if (wire === 'gemini') {
      for (const name of tool.keys()) {
        if (!/^function_?declarations$/i.test(name)) throw refuse(`The tool "${name}"`);
      }
      continue;
    }
    const type = parseField(body.subarray(element.start, element.end), tool.get('type'));
    if (type !== undefined && !(typeof type === 'string' && localTools[wire].test(type))) {
      throw refuse(`The tool type "${String(type).slice(0, 64)}"`);
    }
  }
}

function maxOutput(body: Buffer, fields: Map<string, FieldSpan>): number | null {
  for (const field of ['max_completion_tokens', 'max_tokens', 'max_output_tokens']) {
    const value = parseField(body, fields.get(field));
    if (typeof value === 'number' && Number.isInteger(value) && value > 0) return value;
  }
  return null;
}

/** Replaces bytes `start` to `end` of the body. */
interface Edit {
  start: number;
  end: number;
  text: string;
}

/** A field that is not there is put first, which changes no byte of the others. */
function setField(fields: Map<string, FieldSpan>, field: string, json: string): Edit {
  const span = fields.get(field);
  if (span) return { ...span, text: json };
  return { start: -1, end: -1, text: `${JSON.stringify(field)}:${json}` };
}

function askForUsage(body: Buffer, fields: Map<string, FieldSpan>): Edit[] {
  const options = parseField(body, fields.get('stream_options'));
  const isObject = typeof options === 'object' && options !== null && !Array.isArray(options);
  if (isObject && 'include_usage' in options && options.include_usage === true) return [];
  const merged = { ...(isObject ? options : {}), include_usage: true };
  return [setField(fields, 'stream_options', JSON.stringify(merged))];
}

function splice(body: Buffer, edits: Edit[]): Buffer[] {
  if (edits.length === 0) return [body];
  const pieces: Buffer[] = [];
  let at = 0;
  const added = edits.filter((edit) => edit.start === -1).map((edit) => edit.text);
  if (added.length > 0) {
    at = body.indexOf(0x7b) + 1;
    // An object without fields takes no comma after the new one.
    const isEmpty = /^\s*\}/.test(body.toString('latin1', at, at + 64));
    pieces.push(body.subarray(0, at), Buffer.from(added.join(',') + (isEmpty ? '' : ',')));
  }
  const replaced = edits.filter((edit) => edit.start !== -1).sort((a, b) => a.start - b.start);
  for (const edit of replaced) {
    pieces.push(body.subarray(at, edit.start), Buffer.from(edit.text));
    at = edit.end;
  }
  pieces.push(body.subarray(at));
  return pieces;
}
