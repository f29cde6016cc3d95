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
interface PathNode {
  children: Map<string, PathNode>;
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
const trees: Record<Wire, PathNode> = {
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

function tree(paths: Paths): PathNode {
  const root: PathNode = { children: new Map(), field: null, isAnswer: false };
  for (const [path, target] of Object.entries(paths)) {
    let node = root;
    for (const key of path.split('.')) {
      let next = node.children.get(key);
      if (!next) node.children.set(key, (next = { children: new Map(), field: null, isAnswer: false }));
      node = next;
    }
    if (target === 'answer') node.isAnswer = true;
    else node.field = target;
  }
  return root;
}

const maxKeyBytes = 48;
const maxDepth = 12;

/**
 * Reads token counts out of an answer as its bytes pass: it never holds more than one key or number, whatever the
 * length of the stream, and builds no object. Depth is followed, because a model can be made to write a "usage" of its
 * own into the arguments of a tool; only those at the wire's own place count. The last value of a field wins, since
 * streams report running sums.
 */
export class TokenScan {
  readonly counts: TokenCounts = {
    input: -1,
    cached: -1,
    cacheWrite: -1,
    cacheWriteLong: -1,
    output: -1,
    reasoning: -1,
    total: -1,
  };
  /** Bytes of text, reasoning and tool arguments that the model wrote. */
  answerBytes = 0;

  readonly #root: PathNode;
  readonly #isSse: boolean;
  #line: 'prefix' | 'data' | 'other';
  #prefixAt = 0;
  /** The nodes of the objects that are open; null for those of no interest. */
  #stack: (PathNode | null)[] = [];
  /** How many more levels are open than `#stack` holds: nothing below is of interest. */
  #below = 0;
  #isArray: boolean[] = [];
  #node: PathNode | null = null;
  #inString = false;
  #escaped = false;
  #expectsKey = false;
  #isKey = false;
  #key = Buffer.alloc(maxKeyBytes);
  #keyBytes = 0;
  #number = -1;

  constructor(wire: Wire, isSse: boolean) {
    this.#root = trees[wire];
    this.#isSse = isSse;
    this.#line = isSse ? 'prefix' : 'data';
    this.#reset();
  }

  feed(chunk: Buffer): void {
    const length = chunk.length;
    let at = 0;
    while (at < length) {
      if (this.#inString) at = this.#string(chunk, at);
      else if (this.#line === 'data') this.#structure(chunk[at++] as number);
      else if (this.#line === 'other') {
        const end = chunk.indexOf(0x0a, at);
        at = end === -1 ? length : end + 1;
        if (end !== -1) this.#startLine();
      } else this.#prefix(chunk[at++] as number);
    }
  }

  #reset(): void {
    this.#stack.length = 0;
    this.#isArray.length = 0;
    this.#below = 0;
    this.#node = this.#root;
    this.#inString = false;
    this.#expectsKey = false;
    this.#number = -1;
  }

  #startLine(): void {
    this.#line = 'prefix';
    this.#prefixAt = 0;
  }

  /** An event's data is what follows `data:`; every other line of a stream is skipped (HTML, server-sent events). */
  #prefix(byte: number): void {
    if (byte === 'data:'.charCodeAt(this.#prefixAt)) {
      this.#prefixAt += 1;
      if (this.#prefixAt < 5) return;
      this.#line = 'data';
      this.#reset();
      return;
    }
    if (byte === 0x0a) this.#startLine();
    else if (byte !== 0x0d) this.#line = 'other';
  }

  /** Steps through a string; returns the place after what belongs to it in this chunk. */
  #string(chunk: Buffer, from: number): number {
    const length = chunk.length;
    let at = from;
    let escaped = this.#escaped;
    while (at < length) {
      const byte = chunk[at] as number;
      if (escaped) escaped = false;
      else if (byte === 0x5c) escaped = true;
      else if (byte === 0x22) break;
      else if (byte === 0x0a && this.#isSse) break;
      at += 1;
    }
    this.#escaped = escaped;
    if (this.#isKey) this.#keepKey(chunk, from, at);
    else if (this.#node?.isAnswer) this.answerBytes += at - from;
    if (at === length) return at;
    this.#inString = false;
    // A line end inside a string: the event is broken, the next one is read afresh.
    if (chunk[at] === 0x0a) this.#startLine();
    else if (this.#isKey) this.#endKey();
    return at + 1;
  }

  #keepKey(chunk: Buffer, from: number, to: number): void {
    const end = Math.min(to, from + maxKeyBytes - this.#keyBytes);
    if (end > from) chunk.copy(this.#key, this.#keyBytes, from, end);
    this.#keyBytes += to - from;
  }

  #endKey(): void {
    this.#isKey = false;
    this.#expectsKey = false;
    const parent = this.#stack.at(-1) ?? null;
    const name = this.#keyBytes <= maxKeyBytes ? this.#key.toString('latin1', 0, this.#keyBytes) : '';
    this.#node = parent?.children.get(name) ?? null;
  }

  #structure(byte: number): void {
    if (this.#number >= 0) {
      if (byte >= 0x30 && byte <= 0x39) {
        this.#number = this.#number * 10 + byte - 0x30;
        return;
      }
      this.#endNumber();
    }
    if (byte === 0x22) this.#openString();
    else if (byte === 0x7b) this.#open(false);
    else if (byte === 0x5b) this.#open(true);
    else if (byte === 0x7d || byte === 0x5d) this.#close();
    else if (byte === 0x2c) this.#separate();
    else if (byte === 0x0a && this.#isSse) this.#startLine();
    else if (byte >= 0x30 && byte <= 0x39 && this.#node?.field && this.#below === 0)
      this.#number = byte - 0x30;
  }

  #openString(): void {
    this.#inString = true;
    this.#escaped = false;
    this.#isKey = this.#expectsKey && this.#below === 0;
    this.#keyBytes = 0;
  }

  #open(isArray: boolean): void {
    const interesting = this.#below === 0 && this.#node !== null && this.#stack.length < maxDepth;
    if (!interesting) {
      this.#below += 1;
      return;
    }
    this.#stack.push(this.#node);
    this.#isArray.push(isArray);
    this.#expectsKey = !isArray;
    if (!isArray) this.#node = null;
  }

  #close(): void {
    if (this.#below > 0) {
      this.#below -= 1;
      return;
    }
    this.#stack.pop();
    this.#isArray.pop();
    this.#node = null;
    this.#expectsKey = false;
  }

  #separate(): void {
    if (this.#below > 0) return;
    const isArray = this.#isArray.at(-1) ?? true;
    this.#expectsKey = !isArray;
    // The elements of an array stand at the array's own place.
    this.#node = isArray ? (this.#stack.at(-1) ?? null) : null;
  }

  #endNumber(): void {
    const field = this.#node?.field;
    if (field && Number.isSafeInteger(this.#number)) this.counts[field] = this.#number;
    this.#number = -1;
    // What follows a digit run here (a fraction, an exponent) is not part of a token count.
    this.#node = null;
  }
}
