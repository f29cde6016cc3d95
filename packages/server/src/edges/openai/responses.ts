import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import type { Accepted, SendInput } from '../../services/api.ts';
import { jsonResponse } from '../http/answer.ts';
import { idempotencyKey, requestHash } from '../http/idempotency.ts';
import { invalidRequest, validate } from '../http/validate.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { innerId } from './ids.ts';
import { requireModel } from './model-name.ts';
import { forkAfter, readInput, runOfResponse } from './response-input.ts';
import type { Echo } from './response-object.ts';
import { responseObject, stateOf } from './response-object.ts';
import { responseFrames } from './response-stream.ts';
import { messageOfTurns } from './transcript.ts';
import { refuseUnsupported, requireTextFormat } from './unsupported.ts';

/** Loose: clients send many fields that concern a model alone. */
const ResponseRequest = z.looseObject({
  model: z.string(),
  input: z.unknown(),
  instructions: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  conversation: z.union([z.string(), z.looseObject({ id: z.string() })]).nullish(),
  stream: z.boolean().nullish(),
  background: z.boolean().nullish(),
  metadata: z.record(z.string(), z.unknown()).nullish(),
  text: z.looseObject({ format: z.looseObject({ type: z.string() }).nullish() }).nullish(),
});

type Body = z.output<typeof ResponseRequest>;

/** `POST /v1/responses`. A client that goes away cancels nothing: the response can be read later. */
export async function createResponse(call: HostCall): Promise<Response> {
  const body = validate(ResponseRequest, await call.json(), 'body');
  requireModel(call.agent, body.model);
  refuseUnsupported(body, ['tools', 'prompt']);
  requireTextFormat('text.format', body.text?.format);
  const accepted = await send(call, body);
  call.head['X-Run-Id'] = accepted.runId;
  call.head['X-Conversation-Id'] = accepted.conversationId;
  const echo: Echo = {
    model: body.model,
    instructions: body.instructions ?? null,
    previous_response_id: body.previous_response_id ?? null,
    metadata: body.metadata ?? {},
    background: body.background ?? false,
  };
  if (body.stream && call.canStream) return streamed(call, accepted, echo);
  const waitMs = body.background ? 0 : limits.waitMaxSeconds * 1000;
  const outcome = await call.services.runs.outcome(call.caller, accepted.runId, waitMs, call.gone());
  return jsonResponse(200, JSON.stringify(responseObject(stateOf(outcome), echo)), call.head);
}

async function send(call: HostCall, body: Body): Promise<Accepted> {
  const input = readInput(body.input);
  const instructions = body.instructions
    ? [{ role: 'system' as const, text: body.instructions, parts: [] }]
    : [];
  const { content, parts } = messageOfTurns([...instructions, ...input.turns], 'input');
  const key = idempotencyKey(call.header('idempotency-key'));
  const named = namedPlace(body, input.afterRunId);
  const message: Omit<SendInput, 'conversationId'> = {
    agentId: call.agent.id,
    content,
    parts,
    onBusy: 'enqueue',
    source: 'openai',
    idempotency:
      key === null
        ? null
        : { key, requestHash: requestHash('response', [call.agent.id, named, content, parts]) },
  };
  const { runs } = call.services;
  if (!('runId' in named)) return runs.send(call.caller, { ...message, ...named });
  const directly = await runs.sendAfter(call.caller, named.runId, message);
  return directly ?? runs.send(call.caller, { ...message, conversationId: await forkOnce(call, named, key) });
}

interface After {
  runId: string;
  path: string;
}

type Place = { conversationId: string | null } | After;

/** A request that is sent again with its key, as its answer was lost before its message was sent, does not fork anew. */
async function forkOnce(call: HostCall, after: After, key: string | null): Promise<string> {
  const fork = () => forkAfter(call, after.runId, after.path);
  if (key === null) return fork();
  const hash = requestHash('place of a response', [call.agent.id, after.runId]);
  const { answer } = await call.services.idempotency.once(call.caller, `${key} place`, hash, {
    lease: false,
    run: async () => ({ status: 200, headers: {}, secretOf: null, body: Buffer.from(await fork()) }),
    refusal: () => null,
  });
  return answer.body.toString();
}

function namedPlace(body: Body, afterRunId: string | null): Place {
  const { conversation, previous_response_id: previous } = body;
  if (conversation && previous) {
    throw invalidRequest([
      { path: 'conversation', message: 'must not be given together with previous_response_id' },
    ]);
  }
  if (previous) return { runId: runOfResponse(previous), path: 'previous_response_id' };
  if (conversation) {
    const text = typeof conversation === 'string' ? conversation : conversation.id;
    const conversationId = innerId('conv_', text);
    if (conversationId !== null) return { conversationId };
    throw invalidRequest([{ path: 'conversation', message: 'must be the id of a conversation' }]);
  }
  if (afterRunId !== null) return { runId: afterRunId, path: 'input' };
  return { conversationId: null };
}

function streamed(call: HostCall, accepted: Accepted, echo: Echo): Promise<Response> {
  const { runId, conversationId } = accepted;
  const state = {
    runId,
    conversationId,
    createdAt: new Date(),
    status: 'queued' as const,
    text: null,
    error: null,
    usage: null,
  };
  return follow(call, responseFrames(state, echo), runId);
}

function follow(call: HostCall, frames: ReturnType<typeof responseFrames>, runId: string): Promise<Response> {
  return call.stream(frames.frame, async (sink) => {
    frames.begin(sink);
    return call.services.events.follow(call.caller, { runId }, 0, sink);
  });
}

/** `GET /v1/responses/{id}`, with `stream=true` and `starting_after` also as the rest of its stream. */
export async function getResponse(call: HostCall, id: string): Promise<Response> {
  const runId = runOfResponse(id);
  const outcome = await call.services.runs.outcome(call.caller, runId, 0);
  const echo = echoOf(call);
  const query = new URLSearchParams(call.query);
  if (query.get('stream') === 'true' && call.canStream) {
    const after = query.get('starting_after') ?? '-1';
    if (!/^-1$|^\d{1,9}$/.test(after))
      throw invalidRequest([{ path: 'starting_after', message: 'must be a sequence_number' }]);
    return follow(call, responseFrames(stateOf(outcome), echo, Number(after)), runId);
  }
  return jsonResponse(200, JSON.stringify(responseObject(stateOf(outcome), echo)), call.head);
}

/** `POST /v1/responses/{id}/cancel`. */
export async function cancelResponse(call: HostCall, id: string): Promise<Response> {
  const runId = runOfResponse(id);
  await call.services.runs.cancel(call.caller, runId);
  const outcome = await call.services.runs.outcome(call.caller, runId, 0);
  return jsonResponse(200, JSON.stringify(responseObject(stateOf(outcome), echoOf(call))), call.head);
}

/** What was asked is not kept with the run. */
function echoOf({ agent }: HostCall): Echo {
  return { model: agent.id, instructions: null, previous_response_id: null, metadata: {}, background: false };
}
