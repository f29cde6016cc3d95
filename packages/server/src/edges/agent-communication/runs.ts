import type { ConversationEvent } from '../../domain/events.ts';
import { endsRun } from '../../domain/events.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { Question } from '../../domain/questions.ts';
import type { RunResponse } from '../../services/api.ts';
import { followRun } from '../hosts/follow-run.ts';
import { sendInContext } from '../hosts/send-in-context.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { jsonAnswer } from '../hosts/json-answer.ts';
import { invalidRequest, validate } from '../http/validate.ts';
import { readInput, textOf } from './messages.ts';
import { nameOf, requireName } from './names.ts';
import { conversationOf } from './sessions.ts';
import type { AwaitResume, Mode, Run } from './shapes.ts';
import { runCreate, runResume } from './shapes.ts';
import { RunStory } from './story.ts';

/** `POST /runs` */
export async function createRun(call: HostCall): Promise<Response> {
  const body = validate(runCreate, await call.json({ maxBytes: limits.acpMessageBytes }), 'body');
  requireName(call, body.agent_name);
  const { services, caller, agent } = call;
  const sessionId = (body.session_id ?? body.session?.id)?.toLowerCase() ?? null;
  if (body.session?.history?.length && (await conversationOf(call, sessionId!)) === null)
    throw invalidRequest([
      {
        path: 'session.history',
        message:
          'is of a session that is not here, and what it names is not fetched, from this server neither; send the messages as input',
      },
    ]);
  // An id of a client names a session of this agent alone, so that whether another agent has it cannot be told.
  const accepted = await sendInContext(services, caller, sessionId ?? '', {
    ...readInput(body.input),
    agentId: agent.id,
    onBusy: 'enqueue',
    source: 'agent-communication',
    idempotency: null,
  });
  const story = await storyOf(call, { ...accepted, createdAt: new Date() });
  return answer(call, story, accepted.runId, body.mode, 0);
}

/** `GET /runs/{run_id}` */
export async function getRun(call: HostCall, runId: string): Promise<Response> {
  return jsonAnswer(call, await currentRun(call, runId));
}

/** `GET /runs/{run_id}/events` */
export async function listRunEvents(call: HostCall, runId: string): Promise<Response> {
  const run = await call.services.runs.get(call.caller, runId);
  const story = await storyOf(call, { ...run, runId });
  const events = [];
  for await (const event of logOf(call, runId)) events.push(...story.take(event));
  return jsonAnswer(call, { events });
}

/** `POST /runs/{run_id}/cancel` */
export async function cancelRun(call: HostCall, runId: string): Promise<Response> {
  const { status } = await call.services.runs.cancel(call.caller, runId);
  const run = await currentRun(call, runId);
  const isGoing = status === 'running' || status === 'queued' || status === 'awaiting_input';
  return jsonAnswer(call, isGoing ? { ...run, status: 'cancelling' } : run, 202);
}

/** `POST /runs/{run_id}` */
export async function resumeRun(call: HostCall, runId: string): Promise<Response> {
  const { services, caller } = call;
  const run = await services.runs.get(caller, runId);
  const body = validate(runResume, await call.json({ maxBytes: limits.acpMessageBytes }), 'body');
  if (body.run_id !== undefined && body.run_id.toLowerCase() !== runId)
    throw invalidRequest([{ path: 'run_id', message: 'must be the run of the path' }]);
  const questions = await services.runs.questions(caller, runId);
  if (questions.length === 0) throw new DomainError('conflict', 'The run does not wait for an answer.');
  const story = await storyOf(call, { ...run, runId });
  let seq = 0;
  for await (const event of logOf(call, runId)) {
    story.take(event);
    seq = event.seq;
  }
  await services.runs.respond(caller, runId, responseOf(questions, body.await_resume));
  return answer(call, story, runId, body.mode, seq);
}

/** Answers with what becomes of a run, in the mode that was asked for. `after`: the story knows what was up to there. */
async function answer(
  call: HostCall,
  story: RunStory,
  runId: string,
  mode: Mode,
  after: number,
): Promise<Response> {
  const { services, caller } = call;
  if (mode === 'async') return jsonAnswer(call, await currentRun(call, runId), 202);
  if (mode === 'stream' && call.canStream) {
    return call.stream(
      () => '',
      (sink) =>
        services.events.follow(caller, { runId }, after, {
          write(events) {
            for (const event of events) {
              for (const told of story.take(event)) sink.raw(`data: ${JSON.stringify(told)}\n\n`);
              if (isEnd(event)) sink.end();
            }
            return sink.write([]);
          },
          drained: () => sink.drained(),
          end: () => sink.end(),
        }),
    );
  }
  const run = await settled(call, story, runId, after);
  return jsonAnswer(call, run, story.isSettled ? 200 : 202);
}

/** Resolves when the run has ended, asks, or takes longer than a request may. */
async function settled(call: HostCall, story: RunStory, runId: string, after: number): Promise<Run> {
  const { services, caller } = call;
  const patience = { waitMs: limits.waitMaxSeconds * 1000, isPatient: true };
  for await (const batch of followRun(services.events, caller, runId, after, call.gone(), patience)) {
    for (const event of batch) story.take(event);
    if (batch.some(isEnd)) break;
  }
  return story.run();
}

const isEnd = (event: ConversationEvent) => endsRun(event.type) || event.type === 'run.awaiting_input';

async function currentRun(call: HostCall, runId: string): Promise<Run> {
  const run = await call.services.runs.get(call.caller, runId);
  const story = await storyOf(call, { ...run, runId });
  for await (const event of logOf(call, runId)) story.take(event);
  return story.run();
}

async function storyOf(
  call: HostCall,
  run: { runId: string; conversationId: string; createdAt: Date },
): Promise<RunStory> {
  const names = await call.services.a2a.contextIds([run.conversationId]);
  return new RunStory({
    agentName: nameOf(call.agent),
    runId: run.runId,
    sessionId: names.get(run.conversationId) ?? run.conversationId,
    createdAt: run.createdAt,
  });
}

async function* logOf({ services, caller }: HostCall, runId: string): AsyncGenerator<ConversationEvent> {
  let after = 0;
  for (;;) {
    const { events, hasMore } = await services.events.after(caller, { runId }, after, 500);
    yield* events;
    after = events.at(-1)?.seq ?? after;
    if (!hasMore) return;
  }
}

/**
 * `{type: "message", message}` answers the oldest question with its text; `{request_id?, option_id}` and
 * `{request_id?, content}` say it exactly.
 */
function responseOf(questions: Question[], resume: AwaitResume): RunResponse {
  const wanted = resume['request_id'];
  const question =
    wanted === undefined ? questions[0] : questions.find(({ requestId }) => requestId === wanted);
  if (!question)
    throw invalidRequest([{ path: 'await_resume.request_id', message: 'is not what the run asks' }]);
  const { requestId } = question;
  const parts = resume.message?.parts;
  const text = parts && textOf({ role: 'user', parts });
  if (question.kind === 'permission') {
    const given = (resume.option_id ?? text ?? '').trim();
    const option = question.options.find(
      ({ optionId, name }) => optionId === given || name.toLowerCase() === given.toLowerCase(),
    );
    return { requestId, optionId: option?.optionId ?? given };
  }
  const content = resume['content'] === undefined ? text : resume['content'];
  if (content === undefined || (typeof content !== 'string' && typeof content !== 'object'))
    throw invalidRequest([{ path: 'await_resume', message: 'must have a message, or content' }]);
  return { requestId, content: content as string | Record<string, unknown> | null };
}
