import { canSeeAgent } from '../domain/access.ts';
import type { EventBody } from '../domain/events.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { isLargeValue } from '../domain/json-shape.ts';
import { limits } from '../domain/limits.ts';
import { isTerminal, type Run } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { applyArtifact } from '../domain/artifacts.ts';
import { describeParts, shownExtras } from '../domain/parts.ts';
import type { Artifact, MessageExtras } from '../domain/parts.ts';
import type { Doorbell } from '../domain/ports/doorbell.ts';
import { apart, atOnce, senderOf, type Sliced } from '../domain/slices.ts';
import { requireContent } from '../domain/text.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import { answerQuestion, findQuestion, openQuestions } from '../store/questions.ts';
import { artifactEvents } from '../store/events.ts';
import { acceptRun, type Refusal } from '../store/run-life.ts';
import { isUniqueViolation } from '../store/errors.ts';
import { assistantMessage, findRun, listRuns } from '../store/runs.ts';
import type { Accepted, RunOutcome, RunsService, SendInput } from './api.ts';
import { answerOf, resolvedEvent } from './answers.ts';
import { budgetExceeded } from './budget-exceeded.ts';
import type { Cancel } from './cancel.ts';
import type { Heard, Hub } from './hub.ts';
import type { Outcomes } from './outcomes.ts';
import { pageById } from './paging.ts';
import { readExtras } from './message-extras.ts';
import { startedEvent, type RunLife } from './run-life.ts';
import { createSendAfter } from './send-after.ts';
import { visibleAgent } from './visible-agent.ts';
import { visibleRun } from './visible-conversation.ts';

export interface RunsDependencies {
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  hub: Hub;
  outcomes: Outcomes;
  doorbell: Doorbell;
  life: RunLife;
  cancel: Cancel;
  maxActiveAgents: number;
}

/** What a send carries beside its text, and what is told of its parts where only text is. Throws `invalid_request`. */
function* look(input: SendInput): Sliced<{ extras: MessageExtras | null; described: string }> {
  const extras = readExtras(input);
  yield;
  return { extras, described: describeParts(extras?.parts ?? []) };
}

/** How long `cancel` waits for the harness to stop before it answers with what is. */
const CANCEL_WAIT_MS = 5_000;
/** Between two looks at a run that another replica executes. */
const REREAD_MS = 20;
/** And after one that failed. */
const UNREAD_MS = 500;
const TITLE_CHARS = 80;

export function createRuns(deps: RunsDependencies): RunsService {
  const { db, agents, cursors, hub, outcomes, doorbell, life, cancel } = deps;

  const rereads = new Map<string, 'reading' | 'again'>();

  /** Looks how a run is that may have ended elsewhere. Rings that come meanwhile are one more look. */
  async function reread(runId: string): Promise<void> {
    if (rereads.has(runId)) return void rereads.set(runId, 'again');
    do {
      rereads.set(runId, 'reading');
      const outcome = await readOutcome(runId).catch(() => undefined);
      if (outcome === null) outcomes.forgetRun(runId);
      else if (outcome && isTerminal(outcome.run.status)) outcomes.settle(outcome);
      else {
        await new Promise((resolve) => setTimeout(resolve, outcome ? REREAD_MS : UNREAD_MS));
        // Nobody rings again for what could not be read.
        if (!outcome && outcomes.isAwaited(runId)) rereads.set(runId, 'again');
      }
    } while (rereads.get(runId) === 'again');
    rereads.delete(runId);
  }

  function stale(conversationId: string | null): void {
    for (const runId of outcomes.stale(conversationId)) void reread(runId);
  }
  life.publish.onEnded(stale);
  doorbell.on('events', (ids) => {
    for (const id of ids) {
      hub.stale(id);
      stale(id);
    }
  });
  doorbell.onReconnect(() => {
    hub.stale(null);
    stale(null);
  });

  async function readOutcome(runId: string): Promise<RunOutcome | null> {
    const run = await findRun(db, runId);
    return run && withMessage(run);
  }

  async function withMessage(run: Run): Promise<RunOutcome> {
    return { run, message: run.status === 'completed' ? await assistantMessage(db, run.id) : null };
  }

  const send: RunsService['send'] = async (p, input) => {
    // Others are not waited for in a transaction, which holds a connection.
    const waits = !db.inTransaction && isLargeValue([input.parts, input.metadata]);
    const { extras, described } = waits ? await apart(senderOf(p), look(input)) : atOnce(look(input));
    const parts = extras?.parts ?? [];
    if (input.content !== '' || parts.length === 0) requireContent('content', input.content);
    // A key of one agent sees no other; the statement itself checks the agent and its organisation.
    if (!isId(input.agentId) || !canSeeAgent(p, { id: input.agentId, orgId: p.orgId })) throw notFound();
    if (input.conversationId !== null && !isId(input.conversationId)) throw notFound();
    const conversationId = input.conversationId ?? newId();
    const runId = newId();
    const messageId = newId();
    const at = new Date();
    const events = acceptEvents(input, extras, { conversationId, runId, messageId, at });
    const place = { conversationId, orgId: p.orgId, agentId: input.agentId };
    let heard!: Heard;
    const accept = async (isNewConversation: boolean) => {
      // Inside a transaction of the caller's the run may begin after the commit only.
      const claimant = db.inTransaction ? null : life.offer(place);
      // Another's interrupt may end it before the answer is read here.
      outcomes.expect(runId, place);
      // What follows the opening may be told before as well, and no follower would hear of it again.
      const { stop } = (heard = hub.heardFrom(conversationId));
      const answer = acceptRun(db, {
        ...place,
        isNewConversation,
        title: titleOf(input.content || described),
        source: input.source,
        keyId: p.keyId,
        idempotency: input.idempotency,
        onBusy: input.onBusy,
        runId,
        messageId,
        content: input.content,
        extras: extras && { value: extras, text: parts.length === 0 ? null : described },
        at,
        events,
        maxQueued: limits.queuedRunsPerConversation,
        maxAgents: deps.maxActiveAgents,
        claimant,
      });
      const accepted = await answer
        .finally(() => setImmediate(stop))
        .catch((error: unknown) => {
          outcomes.forgetRun(runId);
          // A claim whose answer was lost is found by the upkeep, like that of any other claim.
          if (claimant) life.take(place, null);
          throw error;
        });
      if (accepted.result !== 'accepted') outcomes.forgetRun(runId);
      if (claimant && !(accepted.result === 'accepted' && accepted.claim)) life.take(place, null);
      return accepted;
    };
    let accepted = await accept(input.conversationId === null);
    if (accepted.result === 'not_found' && input.mayBegin) {
      accepted = await accept(true).catch((error: unknown) => {
        // Somebody else's conversation has this id, or had it; or it has begun at this very moment.
        if (isUniqueViolation(error)) return accept(false);
        throw error;
      });
    }
    const claim = accepted.result === 'accepted' ? accepted.claim : null;
    if (accepted.result === 'replayed') {
      return {
        runId: accepted.runId,
        conversationId: accepted.conversationId,
        agentId: input.agentId,
        replayed: true,
      };
    }
    if (accepted.result === 'budget_exceeded') throw await budgetExceeded(db, p.orgId, input.agentId, at);
    if (accepted.result !== 'accepted') throw refusal(accepted.result);
    const { firstSeq } = accepted;
    const written = claim ? [...events, startedEvent(claim)] : events;
    const opening = written.map((body, index) => ({
      ...body,
      conversationId,
      runId,
      seq: firstSeq + index,
      at,
    }));
    const isWhole = () => !db.inTransaction && !heard.isBeyond(opening.at(-1)!.seq);
    outcomes.expect(runId, { ...place, firstSeq }, () => (isWhole() ? opening : []));
    // Inside a transaction of the caller's nobody may hear of it before the commit.
    db.afterCommit(() => {
      life.publish.written(accepted.cancelled);
      life.publish({ conversationId, runId }, written, firstSeq, at);
      if (claim) life.take(place, claim);
      else life.ready(conversationId);
      if (accepted.interruptedRunId) life.signal(accepted.interruptedRunId);
    });
    return { runId, conversationId, agentId: input.agentId, replayed: false } satisfies Accepted;
  };

  return {
    send,
    sendAfter: createSendAfter({ db, outcomes, send }),

    get: (p, runId) => visibleRun(db, p, runId),

    async listForAgent(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `runs:${agentId}`, query, ({ before, limit }) =>
        listRuns(db, agentId, before, limit),
      );
    },

    async cancel(p, runId) {
      const run = await visibleRun(db, p, runId);
      if (run.status === 'cancelled') return run;
      if (isTerminal(run.status))
        throw new DomainError('conflict', `The run has ended already; it is ${run.status}.`);
      outcomes.expect(runId, run);
      // The wait begins first: the end may be told before the request has been answered.
      const ended = outcomes.wait(runId, CANCEL_WAIT_MS);
      await cancel.one({ id: runId, conversationId: run.conversationId });
      await ended;
      return visibleRun(db, p, runId);
    },

    async respond(p, runId, input) {
      await visibleRun(db, p, runId);
      const question = await findQuestion(db, runId, input.requestId);
      if (!question) {
        throw invalid(
          'requestId',
          'is no request of this run; see its events permission.requested and input.requested.',
        );
      }
      const answer = answerOf(question, input);
      const event = resolvedEvent(runId, question, answer, 'caller');
      const { repeatKey } = input;
      const kept = repeatKey === undefined ? answer : { ...answer, repeatKey };
      const written = await answerQuestion(db, runId, input.requestId, kept, event);
      if (!written)
        throw new DomainError('conflict', 'The run does not wait for an answer to this request any more.');
      life.publish.written(written);
      life.signal(runId);
      return visibleRun(db, p, runId);
    },

    async questions(p, runId) {
      await visibleRun(db, p, runId);
      const asked = await openQuestions(db, runId);
      return asked.filter(({ isAnswered }) => !isAnswered).map(({ question }) => question);
    },

    async asked(p, runId, repeatKey) {
      await visibleRun(db, p, runId);
      const asked = await openQuestions(db, runId);
      return {
        open: asked.filter(({ isAnswered }) => !isAnswered).map(({ question }) => question),
        isRepeated: asked.some((one) => one.repeatKey === repeatKey),
      };
    },

    async artifacts(p, runId) {
      await visibleRun(db, p, runId);
      const artifacts = new Map<string, Artifact>();
      for (const { type, data } of await artifactEvents(db, runId))
        if (type === 'artifact.updated') applyArtifact(artifacts, data);
      return [...artifacts.values()];
    },

    async outcome(p, runId, waitMs, signal) {
      if (!outcomes.find(runId)) {
        const run = await visibleRun(db, p, runId);
        if (isTerminal(run.status) || waitMs <= 0) return withMessage(run);
        outcomes.expect(runId, run);
        // It may have ended between the read and the wait.
        outcomes.stale(run.conversationId);
      }
      const known = outcomes.find(runId)!;
      if (!canSeeAgent(p, { id: known.agentId, orgId: known.orgId })) throw notFound();
      const waiting = outcomes.wait(runId, waitMs, signal);
      if (known.isStale && !known.outcome) void reread(runId);
      const settled = await waiting;
      if (settled) return settled;
      // It may have ended where this process has not heard of it yet: then its answer is there as well.
      return withMessage(await visibleRun(db, p, runId));
    },
  };
}

/** The first line of the first message, as far as it fits. */
function titleOf(content: string): string {
  const line = content.trim().split(/[\r\n\u2028\u2029]/, 1)[0] ?? '';
  const characters = [...line];
  return characters.length <= TITLE_CHARS ? line : `${characters.slice(0, TITLE_CHARS - 1).join('')}…`;
}

function acceptEvents(
  input: SendInput,
  extras: MessageExtras | null,
  ids: { conversationId: string; runId: string; messageId: string; at: Date },
): [EventBody, EventBody] {
  const { conversationId, runId, messageId, at } = ids;
  return [
    {
      type: 'message.created',
      data: {
        id: messageId,
        agentId: input.agentId,
        conversationId,
        runId,
        role: 'user',
        content: input.content,
        ...shownExtras(extras),
        createdAt: at.toISOString(),
      },
    },
    { type: 'run.queued', data: { runId, messageId } },
  ];
}

function refusal(result: Exclude<Refusal, 'budget_exceeded'>): DomainError {
  switch (result) {
    case 'not_found':
      return notFound();
    case 'idempotency_key_reused':
      return new DomainError(
        'idempotency_key_reused',
        'This Idempotency-Key was used for another request within 24 hours; use a new one.',
      );
    case 'conversation_busy':
      return new DomainError(
        'conversation_busy',
        'The conversation has a run that is queued or running; wait for it, or send with onBusy "enqueue" or "interrupt".',
      );
    case 'queue_full':
      return new DomainError(
        'queue_full',
        `The conversation has ${limits.queuedRunsPerConversation} messages waiting; try again when some are done.`,
        { retryAfterSeconds: 5 },
      );
    case 'too_many_sandboxes':
      return new DomainError(
        'too_many_sandboxes',
        'Too many agents of the organisation have unfinished runs; try again when some are done.',
        { retryAfterSeconds: 10 },
      );
  }
}
