import { arrayElements, parseField, topLevelFields } from './json-fields.ts';
import type { FieldSpan } from './json-fields.ts';
import type { Sliced } from '../domain/slices.ts';
import type { Pace } from './slices.ts';
import { WireError } from './wires.ts';
import type { Wire } from './wires.ts';

type Fields = ReadonlyMap<string, FieldSpan>;

/** Fields that name what a provider keeps between requests, and `models`, a list of others to take in place of `model`. */
const sharedState = [
  'previous_response_id',
  'conversation',
  'background',
  'prompt',
  'container',
  'cachedContent',
  'cached_content',
  'models',
];

/** Under a key that agents share, what a provider keeps could be another tenant's. Throws WireError. */
export function refuseSharedState(body: Buffer, fields: Fields): void {
  const field = sharedState.find((name) => isSet(body, fields.get(name)));
  if (!field) return;
  throw new WireError(
    'forbidden',
    `The field "${field}" is not open on the service's key: name one model, and send the whole conversation each time.`,
  );
}

/** Types of tools that run in the harness. Any other runs at the provider. */
const localTools: Record<Exclude<Wire, 'gemini'>, RegExp> = {
  anthropic: /^(?:custom|(?:bash|text_editor|computer|memory|tool_search_tool)_.*)$/,
  'openai-chat': /^(?:function|custom)$/,
  'openai-responses':
    /^(?:function|custom|local_shell|shell|apply_patch|computer_use_preview|namespace|tool_search)$/,
};

const serverToolFields = ['mcp_servers', 'web_search_options', 'plugins'];

const toolWatched = new Set(['type']);

const MAX_KEPT_BYTES = 64 * 1024;
/** The tools of the last request of each wire that had none to refuse: a harness sends the same ones with every call. */
const lastHarmless = new Map<Wire, Buffer>();

/** More than any provider takes with its request. */
export const maxTools = 10_000;

/**
 * A provider's own tools (web search, code, remote MCP) reach the internet past the sandbox's rules and are billed
 * apart from tokens. Throws WireError.
 */
export function* refuseServerTools(wire: Wire, body: Buffer, fields: Fields, pace: Pace): Sliced<void> {
  const named = serverToolFields.find((name) => isSet(body, fields.get(name)));
  if (named) throw serverTool(`"${named}"`);
  const span = fields.get('tools');
  if (!span) return;
  const given = body.subarray(span.start, span.end);
  if (lastHarmless.get(wire)?.equals(given)) return;
  for (const element of (yield* arrayElements(body, span, maxTools, pace)) ?? []) {
    if (body[element.start] !== 0x7b) continue;
    const bytes = body.subarray(element.start, element.end);
    const tool = yield* topLevelFields(bytes, toolWatched, pace);
    if (wire === 'gemini') {
      const other = [...tool.keys()].find((name) => !/^function_?declarations$/i.test(name));
      if (other !== undefined) throw serverTool(`The tool "${other}"`);
      continue;
    }
    const type = parseField(bytes, tool, 'type');
    if (type === undefined || (typeof type === 'string' && localTools[wire].test(type))) continue;
    throw serverTool(`The tool type "${String(type).slice(0, 64)}"`);
  }
  if (given.length <= MAX_KEPT_BYTES) lastHarmless.set(wire, Buffer.from(given));
}

function serverTool(what: string): WireError {
  return new WireError(
    'forbidden',
    `${what} runs at the model provider, outside of the sandbox, and is not open here (allowServerTools, docs/models.md).`,
  );
}

function isSet(body: Buffer, span: FieldSpan | undefined): boolean {
  if (!span) return false;
  if (span.end - span.start > 16) return true;
  return !/^(?:null|false|""|\[\s*\]|\{\s*\})$/.test(body.toString('latin1', span.start, span.end));
}
