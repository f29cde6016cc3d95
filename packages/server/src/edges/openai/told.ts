import type { RunError } from '../../domain/errors.ts';
import type { ConversationEvent, EventUsage } from '../../domain/events.ts';

/** What the OpenAI shape tells of an event of a run; the agent's own tools stay its own. */
export type Told =
  | { kind: 'text'; text: string }
  | { kind: 'thought'; text: string }
  /** The whole answer, of which some may have been told. */
  | { kind: 'whole'; text: string }
  /** The text so far is void, and what follows begins anew. */
  | { kind: 'restarted' }
  | { kind: 'completed'; usage: EventUsage }
  /** `error` null: cancelled. */
  | { kind: 'failed'; error: RunError | null; usage: EventUsage }
  /** The run goes on when somebody has answered; `text` says what, and where. */
  | { kind: 'waiting'; requestId: string; text: string }
  | { kind: 'nothing' };

/** Tells the events of one run, in order. It remembers what was asked until the run waits for it. */
export function createTeller(): (event: ConversationEvent) => Told {
  const asked = new Map<string, string>();
  return (event) => {
    switch (event.type) {
      case 'permission.requested': {
        const { requestId, title, options } = event.data;
        asked.set(requestId, `${title} (${options.map(({ name }) => name).join(', ')})`);
        return nothing;
      }
      case 'input.requested':
        asked.set(event.data.requestId, event.data.message);
        return nothing;
      case 'run.awaiting_input': {
        const { requestId, runId } = event.data;
        const answer = `answer by POST /v1/runs/${runId}/respond of the service, with the requestId ${requestId}`;
        const text = `The agent waits for an answer: ${asked.get(requestId) ?? ''}\n(${answer})`;
        return { kind: 'waiting', requestId, text };
      }
      default:
        return toldOf(event);
    }
  };
}

type Stateless = Exclude<
  ConversationEvent,
  { type: 'permission.requested' | 'input.requested' | 'run.awaiting_input' }
>;

function toldOf(event: Stateless): Told {
  switch (event.type) {
    case 'message.delta':
      return { kind: 'text', text: event.data.text };
    case 'thought.delta':
      return { kind: 'thought', text: event.data.text };
    case 'message.created':
      return event.data.role === 'assistant' ? { kind: 'whole', text: event.data.content } : nothing;
    case 'run.retrying':
      return event.data.discardedMessageId === null ? nothing : { kind: 'restarted' };
    case 'run.completed':
      return { kind: 'completed', usage: event.data.usage };
    case 'run.failed':
      return { kind: 'failed', error: event.data.error, usage: event.data.usage };
    case 'run.cancelled':
      return { kind: 'failed', error: null, usage: event.data.usage };
    case 'run.queued':
    case 'run.started':
    case 'run.resumed':
    case 'tool.started':
    case 'tool.updated':
    case 'tool.finished':
    case 'permission.resolved':
    case 'input.resolved':
    case 'artifact.updated':
    case 'plan.updated':
    case 'usage.recorded':
      return nothing;
    default:
      return unknownType(event);
  }
}

const nothing: Told = { kind: 'nothing' };

function unknownType(event: never): never {
  throw new Error(`The OpenAI shape does not know the event ${JSON.stringify(event)}.`);
}
