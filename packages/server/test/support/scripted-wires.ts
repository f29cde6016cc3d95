import type { ScriptedReply } from './scripted-model.ts';

export type ScriptedWire = 'anthropic' | 'openai-chat' | 'openai-responses' | 'gemini' | 'other';

export interface RenderContext {
  model: string;
  // oxlint-disable-next-line no-explicit-any -- bodies of four wires
  body: any;
  usage: { input: number; cachedInput?: number; output: number } | null;
}

export function wireOfPath(path: string): ScriptedWire {
  const name = path.split('?')[0] ?? '';
  if (/\/messages(\/count_tokens)?$/.test(name)) return 'anthropic';
  if (name.endsWith('/chat/completions') || name.endsWith('/embeddings')) return 'openai-chat';
  if (name.includes('/responses')) return 'openai-responses';
  if (/:[a-zA-Z]+Content$|:countTokens$/.test(name)) return 'gemini';
  return 'other';
}

export function errorBody(
  wire: ScriptedWire,
  error: { status: number; message: string; type?: string },
): string {
  const type = error.type ?? (error.status === 429 ? 'rate_limit_error' : 'api_error');
  if (wire === 'anthropic') return JSON.stringify({ type: 'error', error: { type, message: error.message } });
  if (wire === 'gemini')
    return JSON.stringify({ error: { code: error.status, message: error.message, status: type } });
  return JSON.stringify({ error: { message: error.message, type, code: null, param: null } });
}

export function wholeAnswer(wire: ScriptedWire, reply: ScriptedReply, context: RenderContext): string {
  if (wire === 'anthropic') return JSON.stringify(anthropicMessage(reply, context));
  if (wire === 'openai-responses') return JSON.stringify(responsesObject(reply, context, 'completed'));
  if (wire === 'gemini') return JSON.stringify(geminiPart(reply, context, true));
  return JSON.stringify({
    id: 'chatcmpl-scripted',
    object: 'chat.completion',
    created: 1,
    model: context.model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: reply.text ? reply.text.join('') : null,
          ...(reply.toolCalls ? { tool_calls: chatToolCalls(reply) } : {}),
        },
        finish_reason: chatFinish(reply),
      },
    ],
    ...(context.usage ? { usage: chatUsage(context.usage) } : {}),
  });
}

/** The stream's events, each with its closing blank line. */
export function streamedAnswer(wire: ScriptedWire, reply: ScriptedReply, context: RenderContext): string[] {
  if (wire === 'anthropic') return anthropicStream(reply, context);
  if (wire === 'openai-responses') return responsesStream(reply, context);
  if (wire === 'gemini') return geminiStream(reply, context);
  return chatStream(reply, context);
}

const toolId = (call: { id?: string }, index: number): string => call.id ?? `call_${index + 1}`;

// Anthropic Messages: https://docs.anthropic.com/en/api/messages-streaming

function anthropicUsage(usage: RenderContext['usage']): object {
  if (!usage) return {};
  const cached = usage.cachedInput ?? 0;
  // This wire counts cached tokens apart from `input_tokens`.
  return {
    input_tokens: usage.input - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: usage.output,
  };
}

function anthropicStop(reply: ScriptedReply): string {
  if (reply.stopReason === 'length') return 'max_tokens';
  return reply.toolCalls?.length ? 'tool_use' : 'end_turn';
}

function anthropicMessage(reply: ScriptedReply, context: RenderContext): object {
  const content: object[] = [];
  if (reply.thought)
    content.push({ type: 'thinking', thinking: reply.thought.join(''), signature: 'scripted' });
  if (reply.text) content.push({ type: 'text', text: reply.text.join('') });
  for (const [index, call] of (reply.toolCalls ?? []).entries()) {
    content.push({ type: 'tool_use', id: toolId(call, index), name: call.name, input: call.input });
  }
  return {
    id: 'msg_scripted',
    type: 'message',
    role: 'assistant',
    model: context.model,
    content,
    stop_reason: anthropicStop(reply),
    stop_sequence: null,
    ...(context.usage ? { usage: anthropicUsage(context.usage) } : {}),
  };
}

function anthropicStream(reply: ScriptedReply, context: RenderContext): string[] {
  const events: string[] = [];
  const emit = (data: { type: string; [key: string]: unknown }): void => {
    events.push(`event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  const start = { ...anthropicMessage({}, context), stop_reason: null } as Record<string, unknown>;
  if (context.usage) start['usage'] = { ...anthropicUsage(context.usage), output_tokens: 1 };
  emit({ type: 'message_start', message: start });
  let index = 0;
  const block = (content_block: object, deltas: object[]): void => {
    emit({ type: 'content_block_start', index, content_block });
    for (const delta of deltas) emit({ type: 'content_block_delta', index, delta });
    emit({ type: 'content_block_stop', index });
    index += 1;
  };
  if (reply.thought) {
    const deltas: object[] = reply.thought.map((thinking) => ({ type: 'thinking_delta', thinking }));
    deltas.push({ type: 'signature_delta', signature: 'scripted' });
    block({ type: 'thinking', thinking: '', signature: '' }, deltas);
  }
  if (reply.text) {
    block(
      { type: 'text', text: '' },
      reply.text.map((text) => ({ type: 'text_delta', text })),
    );
  }
  for (const [at, call] of (reply.toolCalls ?? []).entries()) {
    const deltas = halves(JSON.stringify(call.input)).map((partial_json) => ({
      type: 'input_json_delta',
      partial_json,
    }));
    block({ type: 'tool_use', id: toolId(call, at), name: call.name, input: {} }, deltas);
  }
  emit({
    type: 'message_delta',
    delta: { stop_reason: anthropicStop(reply), stop_sequence: null },
    ...(context.usage ? { usage: { output_tokens: context.usage.output } } : {}),
  });
  emit({ type: 'message_stop' });
  return events;
}

/** Arguments arrive in pieces on every wire, so they do here. */
function halves(text: string): string[] {
  const middle = Math.ceil(text.length / 2);
  return [text.slice(0, middle), text.slice(middle)].filter((piece) => piece !== '');
}

// OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat

function chatUsage(usage: NonNullable<RenderContext['usage']>): object {
  return {
    prompt_tokens: usage.input,
    completion_tokens: usage.output,
    total_tokens: usage.input + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cachedInput ?? 0 },
  };
}

function chatToolCalls(reply: ScriptedReply): object[] {
  return (reply.toolCalls ?? []).map((call, index) => ({
    id: toolId(call, index),
    type: 'function',
    function: { name: call.name, arguments: JSON.stringify(call.input) },
  }));
}

function chatFinish(reply: ScriptedReply): string {
  if (reply.stopReason === 'length') return 'length';
  return reply.toolCalls?.length ? 'tool_calls' : 'stop';
}

function chatStream(reply: ScriptedReply, context: RenderContext): string[] {
  const events: string[] = [];
  const base = { id: 'chatcmpl-scripted', object: 'chat.completion.chunk', created: 1, model: context.model };
  const emit = (delta: object, finish_reason: string | null = null): void => {
    const chunk = { ...base, choices: [{ index: 0, delta, finish_reason }] };
    events.push(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  emit({ role: 'assistant', content: '' });
  for (const reasoning_content of reply.thought ?? []) emit({ reasoning_content });
  for (const content of reply.text ?? []) emit({ content });
  for (const [index, call] of (reply.toolCalls ?? []).entries()) {
    const head = { id: toolId(call, index), type: 'function', function: { name: call.name, arguments: '' } };
    emit({ tool_calls: [{ index, ...head }] });
    for (const piece of halves(JSON.stringify(call.input))) {
      emit({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
  }
  emit({}, chatFinish(reply));
  if (context.usage && context.body?.stream_options?.include_usage === true) {
    events.push(`data: ${JSON.stringify({ ...base, choices: [], usage: chatUsage(context.usage) })}\n\n`);
  }
  events.push('data: [DONE]\n\n');
  return events;
}

// OpenAI Responses: https://platform.openai.com/docs/api-reference/responses-streaming

function responsesObject(reply: ScriptedReply, context: RenderContext, status: string): object {
  const output: object[] = [];
  if (reply.text) {
    const content = [{ type: 'output_text', text: reply.text.join(''), annotations: [] }];
    output.push({ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content });
  }
  for (const [index, call] of (reply.toolCalls ?? []).entries()) {
    const call_id = toolId(call, index);
    output.push({
      type: 'function_call',
      id: `fc_${call_id}`,
      call_id,
      name: call.name,
      arguments: JSON.stringify(call.input),
    });
  }
  const usage = context.usage && {
    input_tokens: context.usage.input,
    input_tokens_details: { cached_tokens: context.usage.cachedInput ?? 0 },
    output_tokens: context.usage.output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: context.usage.input + context.usage.output,
  };
  const done = status === 'completed';
  return {
    id: 'resp_scripted',
    object: 'response',
    status,
    model: context.model,
    output: done ? output : [],
    usage: done ? usage : null,
  };
}

function responsesStream(reply: ScriptedReply, context: RenderContext): string[] {
  const events: string[] = [];
  const emit = (data: { type: string; [key: string]: unknown }): void => {
    const numbered = { ...data, sequence_number: events.length };
    events.push(`event: ${data.type}\ndata: ${JSON.stringify(numbered)}\n\n`);
  };
  emit({ type: 'response.created', response: responsesObject(reply, context, 'in_progress') });
  for (const delta of reply.text ?? []) {
    emit({ type: 'response.output_text.delta', item_id: 'msg_1', output_index: 0, content_index: 0, delta });
  }
  const response = responsesObject(reply, context, 'completed') as { output: object[] };
  for (const [output_index, item] of response.output.entries()) {
    emit({ type: 'response.output_item.done', output_index, item });
  }
  emit({ type: 'response.completed', response });
  return events;
}

// Gemini: https://ai.google.dev/api/generate-content

function geminiPart(reply: ScriptedReply, context: RenderContext, last: boolean): object {
  const parts: object[] = [];
  if (reply.text) parts.push({ text: reply.text.join('') });
  for (const call of reply.toolCalls ?? [])
    parts.push({ functionCall: { name: call.name, args: call.input } });
  const usageMetadata = context.usage && {
    promptTokenCount: context.usage.input,
    cachedContentTokenCount: context.usage.cachedInput ?? 0,
    candidatesTokenCount: last ? context.usage.output : 0,
    totalTokenCount: context.usage.input + (last ? context.usage.output : 0),
  };
  return {
    candidates: [{ index: 0, content: { role: 'model', parts }, ...(last ? { finishReason: 'STOP' } : {}) }],
    ...(usageMetadata ? { usageMetadata } : {}),
    modelVersion: context.model,
  };
}

function geminiStream(reply: ScriptedReply, context: RenderContext): string[] {
  const pieces: ScriptedReply[] = (reply.text ?? []).map((token) => ({ text: [token] }));
  pieces.push({ toolCalls: reply.toolCalls ?? [] });
  return pieces.map((piece, index) => {
    return `data: ${JSON.stringify(geminiPart(piece, context, index === pieces.length - 1))}\r\n\r\n`;
  });
}
