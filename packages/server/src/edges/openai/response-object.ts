import type { RunError } from '../../domain/errors.ts';
import type { RunStatus } from '../../domain/nouns.ts';
import type { RunOutcome } from '../../services/api.ts';
import { errorOfRun } from './errors.ts';
import { outerId, seconds } from './ids.ts';

/** What a response says of its request again; a response that is read later has nothing of it. */
export interface Echo {
  model: string;
  instructions: string | null;
  previous_response_id: string | null;
  metadata: Record<string, unknown>;
  background: boolean;
}

export interface ResponseState {
  runId: string;
  conversationId: string;
  createdAt: Date;
  status: RunStatus;
  /** Null: there is none yet, or none any more. */
  text: string | null;
  error: RunError | null;
  usage: { inputTokens: number; outputTokens: number } | null;
}

/** OpenAI's response object. The fields of a model's settings are there for clients that require them. */
export function responseObject(state: ResponseState, echo: Echo) {
  const { runId, usage } = state;
  const isOver = state.status === 'failed' || state.status === 'cancelled';
  const { message, code } = errorOfRun(state.error);
  return {
    id: outerId('resp_', runId),
    object: 'response',
    created_at: seconds(state.createdAt),
    status: statusOf(state.status),
    error: isOver ? { code, message } : null,
    incomplete_details: null,
    output: state.text === null ? [] : [messageItem(runId, state.text)],
    usage: usage && {
      input_tokens: usage.inputTokens,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: usage.outputTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.inputTokens + usage.outputTokens,
    },
    conversation: { id: outerId('conv_', state.conversationId) },
    ...echo,
    max_output_tokens: null,
    parallel_tool_calls: true,
    reasoning: { effort: null, summary: null },
    store: true,
    temperature: null,
    text: { format: { type: 'text' } },
    tool_choice: 'auto',
    tools: [],
    top_p: null,
    truncation: 'disabled',
    user: null,
  };
}

export function stateOf({ run, message }: RunOutcome): ResponseState {
  const hasEnded = run.endedAt !== null;
  return {
    runId: run.id,
    conversationId: run.conversationId,
    createdAt: run.createdAt,
    status: run.status,
    text: message?.content ?? null,
    error: run.error,
    usage: hasEnded ? run.usage : null,
  };
}

export function messageItem(runId: string, text: string | null) {
  const isDone = text !== null;
  return {
    id: outerId('msg_', runId),
    type: 'message',
    role: 'assistant',
    status: isDone ? 'completed' : 'in_progress',
    content: isDone ? [textPart(text)] : [],
  };
}

export function textPart(text: string) {
  return { type: 'output_text', text, annotations: [], logprobs: [] };
}

function statusOf(status: RunStatus): string {
  switch (status) {
    case 'queued':
    case 'completed':
    case 'failed':
    case 'cancelled':
      return status;
    case 'running':
    case 'awaiting_input':
      return 'in_progress';
  }
}
