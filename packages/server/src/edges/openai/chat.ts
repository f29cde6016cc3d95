import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { isTerminal } from '../../domain/nouns.ts';
import type { Accepted, RunOutcome } from '../../services/api.ts';
import { jsonResponse } from '../http/answer.ts';
import { idempotencyKey, requestHash } from '../http/idempotency.ts';
import { invalidRequest, validate } from '../http/validate.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { chatFrames } from './chat-stream.ts';
import { errorAnswer, runRefused } from './errors.ts';
import { innerId, outerId, seconds } from './ids.ts';
import { requireModel } from './model-name.ts';
import { contentOf, messageOfTurns, newTurns, roleOf } from './transcript.ts';
import { refuseUnsupported, requireTextFormat } from './unsupported.ts';

const roles = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;

/** Loose: clients send many fields that concern a model alone. */
const ChatRequest = z.looseObject({
  model: z.string(),
  messages: z
    .array(z.looseObject({ role: z.enum(roles), content: z.unknown().optional() }))
    .min(1)
    .max(10_000),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  n: z.literal(1).nullish(),
  response_format: z.looseObject({ type: z.string() }).nullish(),
  metadata: z.record(z.string(), z.unknown()).nullish(),
});

/** `POST /v1/chat/completions`. */
export async function createChatCompletion(call: HostCall): Promise<Response> {
  const body = validate(ChatRequest, await call.json(), 'body');
  requireModel(call.agent, body.model);
  refuseUnsupported(body, ['tools', 'functions', 'logprobs', 'audio']);
  requireTextFormat('response_format', body.response_format);
  const accepted = await send(call, body);
  call.head['X-Run-Id'] = accepted.runId;
  call.head['X-Conversation-Id'] = accepted.conversationId;
  const isKept = call.header('idempotency-key') !== undefined;
  if (body.stream && call.canStream) {
    if (!isKept) cancelWhenGone(call, accepted.runId);
    return streamed(call, accepted, body.model, body.stream_options?.include_usage === true);
  }
  const outcome = await call.services.runs.outcome(
    call.caller,
    accepted.runId,
    limits.waitMaxSeconds * 1000,
    call.gone(),
  );
  if (isTerminal(outcome.run.status)) return answered(call, outcome, body.model);
  if (!isKept && call.hasLeft()) await call.services.runs.cancel(call.caller, accepted.runId);
  call.head['x-should-retry'] = 'false';
  const place = `/v1/runs/${accepted.runId}`;
  const message =
    outcome.run.status === 'awaiting_input'
      ? `The agent waits for an answer; see the events at ${place}/events of the service, and answer by POST ${place}/respond.`
      : `The run has not ended while this request could wait, ${limits.waitMaxSeconds} seconds or until the service stops, and goes on; read it at ${place} of the service, or stream.`;
  return errorAnswer(504, { message, type: 'server_error', param: null, code: 'timeout' }, call.head);
}

async function send(call: HostCall, body: z.output<typeof ChatRequest>): Promise<Accepted> {
  const turns = body.messages.map(({ role, content }, index) => ({
    role: roleOf(role),
    ...contentOf(content, `messages.${index}.content`),
  }));
  const conversationId = conversationOf(call, body.metadata?.['conversation_id']);
  const { content, parts } = messageOfTurns(conversationId === null ? turns : newTurns(turns), 'messages');
  const key = idempotencyKey(call.header('idempotency-key'));
  const same = [call.agent.id, conversationId, content, parts];
  return call.services.runs.send(call.caller, {
    agentId: call.agent.id,
    conversationId,
    content,
    parts,
    onBusy: 'enqueue',
    source: 'openai',
    idempotency: key === null ? null : { key, requestHash: requestHash('chat completion', same) },
  });
}

/** A conversation that the agent is to remember itself, when the client names one. */
function conversationOf(call: HostCall, named: unknown): string | null {
  const text = call.header('x-conversation-id') ?? named;
  if (text === undefined || text === null) return null;
  const id = typeof text === 'string' ? innerId('conv_', text.trim()) : null;
  if (id !== null) return id;
  throw invalidRequest([{ path: 'metadata.conversation_id', message: 'must be the id of a conversation' }]);
}

function streamed(
  call: HostCall,
  { runId, conversationId }: Accepted,
  model: string,
  includeUsage: boolean,
): Promise<Response> {
  const metadata = { conversation_id: conversationId, run_id: runId };
  const frames = chatFrames({ id: outerId('chatcmpl-', runId), model, includeUsage, metadata });
  return call.stream(frames.frame, async (sink) => {
    frames.begin(sink);
    return call.services.events.follow(call.caller, { runId }, 0, sink);
  });
}

function answered({ head }: HostCall, { run, message }: RunOutcome, model: string): Response {
  const isRefusal = run.error?.code === 'refused';
  if (message === null && !isRefusal) return runRefused(run.error, head);
  const { inputTokens, outputTokens } = run.usage;
  const completion = {
    id: outerId('chatcmpl-', run.id),
    object: 'chat.completion',
    created: seconds(run.createdAt),
    model,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: message?.content ?? null,
          refusal: isRefusal ? run.error!.error : null,
          annotations: [],
        },
        logprobs: null,
        finish_reason: isRefusal ? 'content_filter' : 'stop',
      },
    ],
    usage: {
      prompt_tokens: inputTokens,
      completion_tokens: outputTokens,
      total_tokens: inputTokens + outputTokens,
    },
    metadata: { conversation_id: run.conversationId, run_id: run.id },
  };
  return jsonResponse(200, JSON.stringify(completion), head);
}

/**
 * Nobody could come back for the answer of a chat completion, and its clients stop it by going away: then the run ends
 * too. Not so when the service ended the stream, or when the client has named the request to send it again.
 */
function cancelWhenGone(call: HostCall, runId: string): void {
  const cancel = () => {
    if (!call.hasLeft()) return;
    call.services.runs.cancel(call.caller, runId).catch((error: unknown) => {
      // It may have ended in the same moment.
      call.log.debug('A run whose client is gone was not cancelled.', { runId, error: String(error) });
    });
  };
  const gone = call.gone();
  // It may have left while its message was being accepted.
  if (gone.aborted) cancel();
  else gone.addEventListener('abort', cancel);
}
