import type { z } from 'zod';
import { isTerminal } from '../../domain/nouns.ts';
import type { Accepted } from '../../services/api.ts';
import { idempotencyKey, requestHash } from '../http/idempotency.ts';
import { readPrefer } from '../http/prefer.ts';
import type { Call } from '../http/route.ts';
import { route } from '../http/route.ts';
import { sentOf } from '../present/conversation.ts';
import { ChatSend } from '../schemas/chat.ts';
import { ChatAccepted, ChatSent } from '../schemas/conversation.ts';
import * as example from '../schemas/examples.ts';
import { wantsStream } from '../v1/events.ts';

type ChatCall = Call<unknown, unknown, z.output<typeof ChatSend>>;

/** What makes two sends the same: how the answer is wanted is not part of it. */
function sendInput({ body, header }: ChatCall) {
  const { agentId, content, parts, clientMessageId, metadata } = body;
  const conversationId = body.conversationId ?? null;
  const onBusy = body.onBusy ?? 'enqueue';
  const key = idempotencyKey(header('idempotency-key'));
  const same: unknown[] = [agentId, conversationId, content, onBusy];
  const extras = {
    ...(parts && { parts }),
    ...(clientMessageId !== undefined && { clientMessageId }),
    ...(metadata && { metadata }),
  };
  if (Object.keys(extras).length > 0) same.push(extras);
  const idempotency = key === null ? null : { key, requestHash: requestHash('POST /api/v1/chat/send', same) };
  return { agentId, conversationId, content, ...extras, onBusy, source: 'api', idempotency };
}

async function streamRun(call: ChatCall, accepted: Accepted): Promise<Response> {
  // Where the same events can be had again, should the stream be cut before its first event names the run.
  call.head['Content-Location'] = `/v1/runs/${accepted.runId}/events`;
  return call.stream((sink) => call.services.events.follow(call.caller, { runId: accepted.runId }, 0, sink));
}

export const chatRoutes = [
  route({
    id: 'sendMessage',
    method: 'post',
    path: '/api/v1/chat/send',
    tag: 'Quick start',
    access: 'use',
    summary: 'Send a message to an agent',
    description:
      'Answers with the whole reply when the run has ended. With `stream: true` (or `Accept: text/event-stream`) the events of the run come as they happen. A run that outlasts `Prefer: wait=N` (120 seconds without it), or any with `Prefer: respond-async`, answers 202; read it at `Location`. A client that goes away cancels nothing.',
    body: ChatSend,
    bodyExample: example.send,
    idempotency: 'own',
    requestHeaders: [
      {
        name: 'Prefer',
        description: '`wait=N` with N from 0 to 600 seconds, `respond-async`, or both.',
        example: 'wait=30',
      },
    ],
    replies: {
      200: {
        description: 'The run has ended; or the stream of its events.',
        schema: ChatSent,
        example: example.sent,
        streamExample: example.eventStream,
      },
      202: {
        description: 'Accepted; the run goes on.',
        schema: ChatAccepted,
        example: example.accepted,
        headers: { Location: 'Path of the run.', 'Preference-Applied': 'What of `Prefer` was followed.' },
      },
    },
    errors: ['not_found', 'budget_exceeded', 'conversation_busy', 'queue_full', 'too_many_sandboxes'],
    async handler(call) {
      const { services, caller, body } = call;
      const prefer = readPrefer(call.header('prefer'));
      const accepted = await services.runs.send(caller, sendInput(call));
      if (accepted.replayed) call.head['Idempotent-Replayed'] = 'true';
      const stream = body.stream ?? wantsStream(call.header('accept'));
      if (stream && call.canStream) return streamRun(call, accepted);
      if (prefer.applied) call.head['Preference-Applied'] = prefer.applied;
      const outcome = await services.runs.outcome(
        caller,
        accepted.runId,
        prefer.waitSeconds * 1000,
        call.gone(),
      );
      if (isTerminal(outcome.run.status)) {
        const hasMade = outcome.message !== null && outcome.message.artifactIds.length > 0;
        const artifacts = hasMade ? await services.runs.artifacts(caller, accepted.runId) : [];
        return { status: 200 as const, body: sentOf(outcome, artifacts) };
      }
      return {
        status: 202 as const,
        body: {
          agentId: accepted.agentId,
          conversationId: accepted.conversationId,
          runId: accepted.runId,
          status: outcome.run.status,
          message: null,
        },
        headers: { Location: `/v1/runs/${accepted.runId}` },
      };
    },
  }),
];
