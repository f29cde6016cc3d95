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

export type Item =
  | { role: 'user'; text: string }
  | { role: 'assistant'; text: string; thinking: Thinking[]; calls: ToolCall[] }
  | { role: 'tools'; results: ToolResult[] };

/** Items with their encoding, so that the body of the hundredth request costs one join and no second encoding. */
export class Transcript {
  readonly #encode: (item: Item) => string;
  #items: Item[] = [];
  #encoded: string[] = [];
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

  /** Characters of all encoded items, by which their tokens are estimated. */
  get chars(): number {
    return this.#chars;
  }

  push(item: Item): void {
    const text = this.#encode(item);
    this.#items.push(item);
    this.#encoded.push(text);
    this.#chars += text.length;
  }

  /** Puts `items` in the place of everything. */
  replaceAll(items: readonly Item[]): void {
    this.#items = [];
    this.#encoded = [];
    this.#chars = 0;
    for (const item of items) this.push(item);
  }
}
