import { count, fields, ModelError, parseArguments, parseEvent, string } from './wire.ts';
import type {
  Fields,
  ModelReply,
  ReplyReader,
  ReplySink,
  RequestParts,
  ToolDefinition,
  Usage,
  Wire,
} from './wire.ts';
import type { Item } from './transcript.ts';

/** OpenAI Chat Completions, streamed (platform.openai.com, "Chat Completions" and "Streaming"). */
export const openaiChatWire: Wire = {
  path: '/v1/chat/completions',
  headers: (token) => ({ authorization: `Bearer ${token}` }),
  encode: (item) =>
    messages(item)
      .map((message) => JSON.stringify(message))
      .join(','),
  encodeTools: (tools: readonly ToolDefinition[]) =>
    JSON.stringify(tools.map((tool) => ({ type: 'function', function: tool }))),
  body,
  reader: (sink) => new OpenaiChatReader(sink),
};

function messages(item: Item): object[] {
  if (item.role === 'user') {
    if (!item.images?.length) return [{ role: 'user', content: item.text }];
    const images = item.images.map(({ mediaType, data }) => ({
      type: 'image_url',
      image_url: { url: `data:${mediaType};base64,${data}` },
    }));
    const text = item.text === '' ? [] : [{ type: 'text', text: item.text }];
    return [{ role: 'user', content: [...text, ...images] }];
  }
  if (item.role === 'tools') {
    return item.results.map((result) => ({
      role: 'tool',
      tool_call_id: result.id,
      content: result.text || '(no output)',
    }));
  }
  if (item.calls.length === 0) return [{ role: 'assistant', content: item.text || '(no answer)' }];
  const toolCalls = item.calls.map((call) => ({
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: JSON.stringify(call.input) },
  }));
  return [{ role: 'assistant', content: item.text === '' ? null : item.text, tool_calls: toolCalls }];
}

function body(parts: RequestParts): string {
  const system = JSON.stringify({ role: 'system', content: parts.system });
  const tools = parts.tools === '' ? '' : `,"tools":${parts.tools}`;
  const rest = parts.encoded.length === 0 ? '' : `,${parts.encoded.join(',')}`;
  return (
    `{"model":${JSON.stringify(parts.model)},"stream":true,"stream_options":{"include_usage":true}${tools},` +
    `"messages":[${system}${rest}]}`
  );
}

interface PartialCall {
  id: string;
  name: string;
  json: string;
}

class OpenaiChatReader implements ReplyReader {
  readonly #sink: ReplySink;
  readonly #calls = new Map<number, PartialCall>();
  readonly #usage: Usage = { inputTokens: 0, outputTokens: 0 };
  #text = '';
  #finishReason: string | null = null;
  #refused = false;
  #done = false;

  constructor(sink: ReplySink) {
    this.#sink = sink;
  }

  event(data: string): void {
    if (data === '[DONE]') {
      this.#done = true;
      return;
    }
    const event = parseEvent(data);
    if (event['error']) throw streamError(event['error']);
    if (event['usage']) {
      const usage = fields(event['usage']);
      this.#usage.inputTokens = count(usage['prompt_tokens']);
      this.#usage.outputTokens = count(usage['completion_tokens']);
    }
    const choice = fields(fields(event['choices'])[0]);
    this.#finishReason = string(choice['finish_reason']) || this.#finishReason;
    this.#delta(fields(choice['delta']));
  }

  finish(): ModelReply {
    if (this.#finishReason === null && !this.#done) {
      throw new ModelError('model_error', 'The model provider ended its answer early.', { retryable: true });
    }
    const ordered = [...this.#calls.entries()].sort(([a], [b]) => a - b);
    const calls = ordered.map(([, call]) => parseArguments(call.id, call.name, call.json));
    const refused = this.#refused || this.#finishReason === 'content_filter';
    const stop = this.#finishReason === 'length' ? 'length' : refused ? 'refusal' : 'end';
    return { text: this.#text, thinking: [], calls, stop, usage: this.#usage };
  }

  #delta(delta: Fields): void {
    // Not of the standard, but what most servers with visible reasoning send.
    const thought = string(delta['reasoning_content']) || string(delta['reasoning']);
    if (thought !== '') this.#sink.thought(thought);
    const refusal = string(delta['refusal']);
    if (refusal !== '') this.#refused = true;
    this.#addText(refusal);
    this.#addText(string(delta['content']));
    const calls = delta['tool_calls'];
    if (Array.isArray(calls)) for (const part of calls) this.#callPart(fields(part));
  }

  #addText(text: string): void {
    if (text === '') return;
    this.#text += text;
    this.#sink.text(text);
  }

  #callPart(part: Fields): void {
    const index = this.#indexOf(part);
    let call = this.#calls.get(index);
    if (!call) this.#calls.set(index, (call = { id: '', name: '', json: '' }));
    const given = fields(part['function']);
    call.id = string(part['id']) || call.id;
    call.name += string(given['name']);
    if (typeof given['arguments'] === 'string') call.json += given['arguments'];
    else if (given['arguments']) call.json = JSON.stringify(given['arguments']);
  }

  /** Some servers leave `index` out: a part with a name begins another call, one without belongs to the last. */
  #indexOf(part: Fields): number {
    if (typeof part['index'] === 'number') return part['index'];
    return fields(part['function'])['name'] ? this.#calls.size : Math.max(0, this.#calls.size - 1);
  }
}

function streamError(error: unknown): ModelError {
  const { message, code, type } = (
    typeof error === 'object' && error !== null ? error : { message: error }
  ) as Record<string, unknown>;
  const kind = `${code ?? ''} ${type ?? ''}`;
  const retryable = /server_error|overloaded|rate_limit|timeout|\b(429|5\d\d)\b/.test(kind);
  return new ModelError('model_error', `The model provider failed: ${`${message ?? kind}`.slice(0, 500)}`, {
    retryable,
  });
}
