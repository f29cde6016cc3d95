import type { Wire } from './wires.ts';

/** What the provider said that a call used; -1 = it did not say. */
export interface TokenCounts {
  /** With or without the cached part, as the wire has it. */
  input: number;
  cached: number;
  /** Tokens written to the provider's prompt cache, which some bill at a price of their own. */
  cacheWrite: number;
  cacheWriteLong: number;
  output: number;
  reasoning: number;
  total: number;
}

type Field = keyof TokenCounts;

/** A node for each key on the way to a field of interest. Arrays do not count as a level. */
export interface PathNode {
  children: Map<string, PathNode>;
  /** A bit for each length that a child's key has: most keys are ruled out by it, without making a text of them. */
  keyLengths: number;
  field: Field | null;
  /** The length of this text is counted, to estimate an answer whose usage never came. */
  isAnswer: boolean;
}

type Paths = Record<string, Field | 'answer'>;

const chatUsage: Paths = {
  'usage.prompt_tokens': 'input',
  'usage.completion_tokens': 'output',
  'usage.total_tokens': 'total',
  'usage.prompt_tokens_details.cached_tokens': 'cached',
  'usage.prompt_cache_hit_tokens': 'cached',
};

const responsesUsage = (prefix: string): Paths => ({
  [`${prefix}usage.input_tokens`]: 'input',
  [`${prefix}usage.input_tokens_details.cached_tokens`]: 'cached',
  [`${prefix}usage.output_tokens`]: 'output',
});

const anthropicUsage = (prefix: string): Paths => ({
  [`${prefix}usage.input_tokens`]: 'input',
  [`${prefix}usage.cache_read_input_tokens`]: 'cached',
  [`${prefix}usage.cache_creation_input_tokens`]: 'cacheWrite',
  [`${prefix}usage.cache_creation.ephemeral_1h_input_tokens`]: 'cacheWriteLong',
  [`${prefix}usage.output_tokens`]: 'output',
});

/** One tree serves the events of a stream and the whole answer of a wire: their paths do not collide. */
export const usageTrees: Record<Wire, PathNode> = {
  anthropic: tree({
    ...anthropicUsage(''),
    ...anthropicUsage('message.'),
    'delta.text': 'answer',
    'delta.thinking': 'answer',
    'delta.partial_json': 'answer',
    'content.text': 'answer',
  }),
  'openai-chat': tree({
    ...chatUsage,
    'choices.delta.content': 'answer',
    'choices.delta.reasoning': 'answer',
    'choices.delta.reasoning_content': 'answer',
    'choices.delta.tool_calls.function.arguments': 'answer',
    'choices.message.content': 'answer',
    'choices.message.tool_calls.function.arguments': 'answer',
  }),
  'openai-responses': tree({
    ...responsesUsage(''),
    ...responsesUsage('response.'),
    delta: 'answer',
    'output.content.text': 'answer',
  }),
  gemini: tree({
    'usageMetadata.promptTokenCount': 'input',
    'usageMetadata.cachedContentTokenCount': 'cached',
    'usageMetadata.candidatesTokenCount': 'output',
    'usageMetadata.thoughtsTokenCount': 'reasoning',
    'usageMetadata.totalTokenCount': 'total',
    'candidates.content.parts.text': 'answer',
  }),
};

function newNode(): PathNode {
  return { children: new Map(), keyLengths: 0, field: null, isAnswer: false };
}

function tree(paths: Paths): PathNode {
  const root = newNode();
  for (const [path, target] of Object.entries(paths)) {
    let node = root;
    for (const key of path.split('.')) {
      let next = node.children.get(key);
      if (!next) {
        node.children.set(key, (next = newNode()));
        node.keyLengths |= 1 << key.length;
      }
      node = next;
    }
    if (target === 'answer') node.isAnswer = true;
    else node.field = target;
  }
  return root;
}

/** No key of a path is longer; a bit mask holds their lengths. */
export const maxKeyBytes = 31;
