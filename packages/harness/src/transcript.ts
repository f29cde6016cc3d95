/** What the model has been told, in a form of our own; each wire encodes an item once and keeps the text. */

export interface ToolCall {
  id: string;
  name: string;
  /** Parsed arguments; `badArguments` holds the raw text where they were no JSON object. */
  input: Record<string, unknown>;
  badArguments?: string;
}

export interface ToolResult {
  id: string;
  name: string;
  text: string;
  isError: boolean;
}

/** A provider's own record of its thinking; given back as it came, since some models refuse a tool result without it. */
export type Thinking = { text: string; signature: string } | { redacted: string };

export interface Image {
  mediaType: string;
  /** Base64. */
  data: string;
}

export type Item =
  | { role: 'user'; text: string; images?: Image[] }
  | { role: 'assistant'; text: string; thinking: Thinking[]; calls: ToolCall[] }
  | { role: 'tools'; results: ToolResult[] };

/** About 1,500 tokens, however many characters it is written in. */
const charsPerImage = 6_000;

function imageChars(item: Item): number {
  const images = item.role === 'user' ? (item.images ?? []) : [];
  return images.reduce((chars, { data }) => chars + data.length - charsPerImage, 0);
}

/** Items with their encoding, so that the body of the hundredth request costs one join and no second encoding. */
export class Transcript {
  readonly #encode: (item: Item) => string;
  #items: Item[] = [];
  #encoded: string[] = [];
  #weights: number[] = [];
  #chars = 0;

  constructor(encode: (item: Item) => string) {
    this.#encode = encode;
  }

  get items(): readonly Item[] {
    return this.#items;
  }

  get encoded(): readonly string[] {
    return this.#encoded;
  }

  /** What each item counts in `chars`. */
  get weights(): readonly number[] {
    return this.#weights;
  }

  /** Characters of all encoded items, by which their tokens are estimated; an image counts as what models take it for. */
  get chars(): number {
    return this.#chars;
  }

  push(item: Item): void {
    const text = this.#encode(item);
    this.#items.push(item);
    this.#encoded.push(text);
    const weight = text.length - imageChars(item);
    this.#weights.push(weight);
    this.#chars += weight;
  }

  /** Puts `items` in the place of everything. */
  replaceAll(items: readonly Item[]): void {
    this.#items = [];
    this.#encoded = [];
    this.#weights = [];
    this.#chars = 0;
    for (const item of items) this.push(item);
  }
}
