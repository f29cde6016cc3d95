import type { Item, Thinking, ToolCall } from './transcript.ts';

export interface ToolDefinition {
  name: string;
  description: string;
  /** JSON Schema of an object. */
  parameters: Record<string, unknown>;
}

export interface Usage {
  inputTokens: number;
  outputTokens: number;
}

export interface ModelReply {
  text: string;
  thinking: Thinking[];
  calls: ToolCall[];
  stop: 'end' | 'length' | 'refusal';
  usage: Usage;
}

/** Takes what is to be shown at once. */
export interface ReplySink {
  text(delta: string): void;
  thought(delta: string): void;
}

/** Collects one streamed answer. */
export interface ReplyReader {
  /** One event's data. Throws ModelError when it says that the call failed. */
  event(data: string): void;
  /** Throws ModelError when the stream ended before the answer was whole. */
  finish(): ModelReply;
}

export interface RequestParts {
  model: string;
  system: string;
  tools: string;
  encoded: readonly string[];
  maxOutputTokens: number;
}

/** One protocol of model providers. Texts of a body are kept encoded, thus `encode` and `encodeTools` run once each. */
export interface Wire {
  /** The provider's own path, below `/llm/<provider>`. */
  path: string;
  headers(token: string): Record<string, string>;
  encode(item: Item): string;
  encodeTools(tools: readonly ToolDefinition[]): string;
  body(parts: RequestParts): string;
  reader(sink: ReplySink): ReplyReader;
}

export type ModelErrorCode = 'model_error' | 'budget_exceeded' | 'context_full';

/** `message` is safe to show: it is what the provider says to its callers. */
export class ModelError extends Error {
  readonly code: ModelErrorCode;
  readonly retryable: boolean;
  readonly retryAfterMs: number | null;
  /** The connection to the gateway broke: a provider's error, or the end of the service itself. */
  readonly isLost: boolean;
  /** The gateway says that the provider gave no answer at all. */
  readonly isUnreachable: boolean;
  /** The gateway's socket lets nobody in just now: nobody was asked. */
  readonly isShut: boolean;
  /** What the user has seen of the answer when the service was restarted: the model is to go on from there. */
  isCut = false;

  constructor(
    code: ModelErrorCode,
    message: string,
    options: {
      retryable?: boolean;
      retryAfterMs?: number | null;
      isLost?: boolean;
      isUnreachable?: boolean;
      isShut?: boolean;
    } = {},
  ) {
    super(message);
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.retryAfterMs = options.retryAfterMs ?? null;
    this.isLost = options.isLost ?? false;
    this.isShut = options.isShut ?? false;
    this.isUnreachable = options.isUnreachable ?? false;
  }
}

/** An argument text that is no JSON object becomes an error that the model is told, not one that ends the turn. */
export function parseArguments(id: string, name: string, text: string): ToolCall {
  if (text.trim() === '') return { id, name, input: {} };
  try {
    const input: unknown = JSON.parse(text);
    if (typeof input === 'object' && input !== null && !Array.isArray(input)) {
      return { id, name, input: input as Record<string, unknown> };
    }
  } catch {
    // Told below.
  }
  return { id, name, input: {}, badArguments: text };
}

export type Fields = Record<string, unknown>;

/** The fields of an object; of anything else, none. */
export function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

export function string(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

export function parseEvent(data: string): Fields {
  try {
    const value: unknown = JSON.parse(data);
    if (typeof value === 'object' && value !== null) return value as Fields;
  } catch {
    // Told below.
  }
  throw new ModelError('model_error', 'The model provider sent an event that is not JSON.', {
    retryable: true,
  });
}

export function count(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : 0;
}
