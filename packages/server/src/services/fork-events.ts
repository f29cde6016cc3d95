import type { EventBody, EventType, EventUsage } from '../domain/events.ts';

/** New ids for old ones. A text that is not known yet gets one of its own, always the same. */
export interface ForkIds {
  agentId: string;
  conversationId: string;
  run(old: string): string;
  message(old: string): string;
  /** Null: the agent of the fork has no such deployment. */
  deployment(old: string | null): string | null;
}

/** What a fork does not have: whole messages say the same as deltas, and nothing is billed twice. */
export const leftOutOfForks: EventType[] = ['message.delta', 'thought.delta', 'usage.recorded'];

const noUsage: EventUsage = { inputTokens: 0, outputTokens: 0, cost: '0.000000' };

/**
 * An event as the fork of its conversation has it; null = it has none. What a harness or a model has named (calls of
 * tools, questions) keeps its name, since it counts inside its run only.
 */
export function forkedEvent(event: EventBody, ids: ForkIds): EventBody | null {
  const { type, data } = event;
  const runId = ids.run(data.runId);
  switch (type) {
    case 'message.delta':
    case 'thought.delta':
    case 'usage.recorded':
      return null;
    case 'message.created': {
      const { agentId, conversationId } = ids;
      return { type, data: { ...data, id: ids.message(data.id), agentId, conversationId, runId } };
    }
    case 'run.queued':
      return { type, data: { ...data, runId, messageId: ids.message(data.messageId) } };
    case 'run.started':
      return { type, data: { ...data, runId, deploymentId: ids.deployment(data.deploymentId) } };
    case 'run.retrying': {
      const { discardedMessageId: discarded } = data;
      return { type, data: { ...data, runId, discardedMessageId: discarded && ids.message(discarded) } };
    }
    case 'run.completed':
      return { type, data: { ...data, runId, messageId: ids.message(data.messageId), usage: noUsage } };
    case 'run.failed':
      return { type, data: { ...data, runId, usage: noUsage } };
    case 'run.cancelled':
      return { type, data: { ...data, runId, usage: noUsage } };
    case 'run.awaiting_input':
      return { type, data: { ...data, runId } };
    case 'run.resumed':
      return { type, data: { ...data, runId } };
    case 'tool.started':
    case 'tool.updated':
    case 'tool.finished':
      return { type, data: { ...data, runId } };
    case 'permission.requested':
      return { type, data: { ...data, runId } };
    case 'permission.resolved':
      return { type, data: { ...data, runId } };
    case 'input.requested':
      return { type, data: { ...data, runId } };
    case 'input.resolved':
      return { type, data: { ...data, runId } };
    case 'artifact.updated':
      return { type, data: { ...data, runId } };
    case 'plan.updated':
      return { type, data: { ...data, runId } };
    default:
      return unknownType(type);
  }
}

function unknownType(type: never): never {
  throw new Error(`The fork of a conversation does not know the event ${String(type)}.`);
}
