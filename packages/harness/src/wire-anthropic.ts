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
import type { Item, Thinking, ToolCall } from './transcript.ts';

/** Anthropic Messages, streamed (platform.claude.com, "Messages API" and "Streaming messages"). */
export const anthropicWire: Wire = {
  path: '/v1/messages',
  headers: (token) => ({ 'x-api-key': token, 'anthropic-version': '2023-06-01' }),
  encode: (item) => JSON.stringify(message(item)),
  encodeTools,
  body,
  reader: (sink) => new AnthropicReader(sink),
};

const cacheMark = { type: 'ephemeral' };

function encodeTools(tools: readonly ToolDefinition[]): string {
  return JSON.stringify(
    tools.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters })),
  );
}

function message(item: Item): object {
  if (item.role === 'user') {
    const images = (item.images ?? []).map(({ mediaType, data }) => ({
      type: 'image',
      source: { type: 'base64', media_type: mediaType, data },
    }));
    if (images.length > 0 && item.text === '') return { role: 'user', content: images };
    return { role: 'user', content: [...images, { type: 'text', text: item.text || ' ' }] };
  }
  if (item.role === 'tools') {
    const content = item.results.map((result) => ({
      type: 'tool_result',
      tool_use_id: result.id,
      content: [{ type: 'text', text: result.text || '(no output)' }],
      ...(result.isError ? { is_error: true } : {}),
    }));
    return { role: 'user', content };
  }
  const content: object[] = item.thinking.map((block) =>
    'redacted' in block
      ? { type: 'redacted_thinking', data: block.redacted }
      : { type: 'thinking', thinking: block.text, signature: block.signature },
  );
  // A text of white space only is refused by the provider, as is a message without content.
  if (item.text.trim() !== '') content.push({ type: 'text', text: item.text });
  for (const call of item.calls)
    content.push({ type: 'tool_use', id: call.id, name: call.name, input: call.input });
  if (content.length === 0) content.push({ type: 'text', text: '(no answer)' });
  return { role: 'assistant', content };
}

function body(parts: RequestParts): string {
  const system = JSON.stringify([{ type: 'text', text: parts.system, cache_control: cacheMark }]);
  const tools = parts.tools === '' ? '' : `,"tools":${parts.tools}`;
  return (
    `{"model":${JSON.stringify(parts.model)},"max_tokens":${parts.maxOutputTokens},"stream":true,` +
    `"system":${system}${tools},"messages":[${markLast(parts.encoded)}]}`
  );
}

/** The last block carries the mark up to which the provider may keep its prefix: the next call begins with all of it. */
function markLast(encoded: readonly string[]): string {
  const last = encoded.at(-1);
  if (last === undefined || !last.endsWith('}]}')) return encoded.join(',');
  const marked = `${last.slice(0, -3)},"cache_control":${JSON.stringify(cacheMark)}}]}`;
  return encoded.length === 1 ? marked : `${encoded.slice(0, -1).join(',')},${marked}`;
}

type Block =
  | { type: 'text' }
  | { type: 'tool'; id: string; name: string; json: string; given: unknown }
  | { type: 'thinking'; text: string; signature: string };

class AnthropicReader implements ReplyReader {
  readonly #sink: ReplySink;
  readonly #blocks = new Map<number, Block>();
  readonly #thinking: Thinking[] = [];
  readonly #calls: ToolCall[] = [];
  readonly #usage: Usage = { inputTokens: 0, outputTokens: 0 };
  #text = '';
  #stopReason: string | null = null;
  #ended = false;

  constructor(sink: ReplySink) {
    this.#sink = sink;
  }

  event(data: string): void {
    const event = parseEvent(data);
    switch (event['type']) {
      case 'message_start':
        return this.#count(fields(event['message'])['usage']);
      case 'content_block_start':
        return this.#start(count(event['index']), fields(event['content_block']));
      case 'content_block_delta':
        return this.#delta(count(event['index']), fields(event['delta']));
      case 'content_block_stop':
        return this.#stop(count(event['index']));
      case 'message_delta':
        this.#stopReason = string(fields(event['delta'])['stop_reason']) || this.#stopReason;
        return this.#count(event['usage']);
      case 'message_stop':
        this.#ended = true;
        return;
      case 'error':
        throw streamError(fields(event['error']));
    }
  }

  finish(): ModelReply {
    // The stop reason alone is enough: some compatible servers leave the last event out.
    if (!this.#ended && this.#stopReason === null) {
      throw new ModelError('model_error', 'The model provider ended its answer early.', { retryable: true });
    }
    for (const index of this.#blocks.keys()) this.#stop(index);
    const stop =
      this.#stopReason === 'max_tokens' ? 'length' : this.#stopReason === 'refusal' ? 'refusal' : 'end';
    return { text: this.#text, thinking: this.#thinking, calls: this.#calls, stop, usage: this.#usage };
  }

  #count(given: unknown): void {
    const usage = fields(given);
    const input =
      count(usage['input_tokens']) +
      count(usage['cache_read_input_tokens']) +
      count(usage['cache_creation_input_tokens']);
    if (input > 0) this.#usage.inputTokens = input;
    if (count(usage['output_tokens']) > 0) this.#usage.outputTokens = count(usage['output_tokens']);
  }

  #start(index: number, block: Fields): void {
    if (block['type'] === 'tool_use') {
      const given = block['input'];
      this.#blocks.set(index, {
        type: 'tool',
        id: string(block['id']),
        name: string(block['name']),
        json: '',
        given,
      });
    } else if (block['type'] === 'thinking') {
      this.#blocks.set(index, { type: 'thinking', text: '', signature: '' });
    } else if (block['type'] === 'redacted_thinking') {
      this.#thinking.push({ redacted: string(block['data']) });
    } else if (block['type'] === 'text' && typeof block['text'] === 'string') {
      this.#addText(block['text']);
    }
  }

  #delta(index: number, delta: Fields): void {
    const block = this.#blocks.get(index);
    if (delta['type'] === 'text_delta') this.#addText(string(delta['text']));
    else if (delta['type'] === 'input_json_delta' && block?.type === 'tool')
      block.json += string(delta['partial_json']);
    else if (delta['type'] === 'signature_delta' && block?.type === 'thinking')
      block.signature += string(delta['signature']);
    else if (delta['type'] === 'thinking_delta' && block?.type === 'thinking') {
      block.text += string(delta['thinking']);
      this.#sink.thought(string(delta['thinking']));
    }
  }

  #stop(index: number): void {
    const block = this.#blocks.get(index);
    this.#blocks.delete(index);
    if (block?.type === 'thinking') this.#thinking.push({ text: block.text, signature: block.signature });
    if (block?.type !== 'tool') return;
    const text = block.json === '' ? JSON.stringify(block.given ?? {}) : block.json;
    this.#calls.push(parseArguments(block.id, block.name, text));
  }

  #addText(text: string): void {
    if (text === '') return;
    this.#text += text;
    this.#sink.text(text);
  }
}

function streamError(error: Fields): ModelError {
  const type = string(error['type']);
  const retryable = type === 'overloaded_error' || type === 'api_error' || type === 'rate_limit_error';
  return new ModelError(
    'model_error',
    `The model provider failed: ${(string(error['message']) || type).slice(0, 500)}`,
    {
      retryable,
    },
  );
}
