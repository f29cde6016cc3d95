import type { PlanEntry, SessionUpdate, ToolCallStatus, ToolKind } from '@agentclientprotocol/sdk';
import type { ConversationEvent, EventBody, ToolStatus } from '../../domain/events.ts';
import { blockOf } from './content.ts';

/** A `session/update` to send. `seq` is that of the last event in it, so that a client can go on after it. */
export interface Told {
  seq: number;
  runId: string;
  update: SessionUpdate;
}

type EventOf<T extends EventBody['type']> = Extract<ConversationEvent, { type: T }>;

/**
 * Events of a conversation as updates of a session (Agent Client Protocol v1, `session/update`), in order. It remembers
 * what it has told of the messages under way, so that one goes through it from its first event on.
 */
export class UpdateMapper {
  /** Of messages that are streamed: how much of the text was told. */
  readonly #told = new Map<string, number>();
  /** Runs that go on, and of whose artifacts something was told. */
  readonly #withArtifacts = new Set<string>();
  #usedTokens = { input: 0, cached: 0, output: 0 };
  #cost = 0;

  /** `isOwn`: of a run that this client prompted, whose message and end it knows. */
  map(events: ConversationEvent[], isOwn: (runId: string) => boolean): Told[] {
    const told: Told[] = [];
    for (const event of events) {
      for (const update of this.#updatesOf(event, isOwn(event.runId))) {
        const last = told.at(-1);
        if (last?.runId === event.runId && joined(last.update, update)) last.seq = event.seq;
        else told.push({ seq: event.seq, runId: event.runId, update });
      }
    }
    return told;
  }

  #updatesOf(event: ConversationEvent, isOwn: boolean): SessionUpdate[] {
    if (event.type === 'artifact.updated') {
      this.#withArtifacts.add(event.runId);
      return artifactChunks(event);
    }
    if (event.type === 'message.created' && event.data.role === 'user') return isOwn ? [] : userChunks(event);
    const update = this.#updateOf(event, isOwn);
    return update === null ? [] : [update];
  }

  #updateOf(event: ConversationEvent, isOwn: boolean): SessionUpdate | null {
    switch (event.type) {
      case 'message.created':
        return this.#answer(event);
      case 'message.delta': {
        const { messageId, text } = event.data;
        this.#told.set(messageId, (this.#told.get(messageId) ?? 0) + text.length);
        return agentText(messageId, text);
      }
      case 'thought.delta':
        return { sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text: event.data.text } };
      case 'tool.started':
        return toolCall(event);
      case 'tool.updated':
      case 'tool.finished':
        return toolCallUpdate(event);
      case 'plan.updated':
        return { sessionUpdate: 'plan', entries: event.data.entries.map(planEntry) };
      case 'usage.recorded':
        return this.#usage(event);
      case 'run.retrying':
        return this.#retrying(event);
      case 'run.completed':
      case 'run.failed':
      case 'run.cancelled':
        this.#withArtifacts.delete(event.runId);
        return isOwn ? null : endOfRun(event);
      case 'run.queued':
      case 'run.started':
      case 'run.awaiting_input':
      case 'run.resumed':
      case 'permission.requested':
      case 'permission.resolved':
      case 'input.requested':
      case 'input.resolved':
      case 'artifact.updated':
        return null;
    }
  }

  /** The whole answer comes at the end: what of it was not streamed, or is not in the log any more, is told now. */
  #answer({ data }: EventOf<'message.created'>): SessionUpdate | null {
    const rest = data.content.slice(this.#told.get(data.id) ?? 0);
    this.#told.delete(data.id);
    return rest === '' ? null : agentText(data.id, rest);
  }

  #retrying({ data }: EventOf<'run.retrying'>): SessionUpdate | null {
    const hadText = data.discardedMessageId !== null && this.#told.delete(data.discardedMessageId);
    const hadArtifacts = this.#withArtifacts.delete(data.runId);
    if (!hadText && !hadArtifacts) return null;
    // What a client was shown cannot be taken back in this protocol; the new answer has a message id of its own.
    return {
      sessionUpdate: 'notice',
      severity: 'warning',
      title: 'The agent was interrupted; its answer begins anew.',
    };
  }

  /** `size` 0: the model's context window is not known here. */
  #usage({ data }: EventOf<'usage.recorded'>): SessionUpdate | null {
    const used = this.#usedTokens;
    if (data.meter === 'model.input_tokens') used.input = data.quantity;
    else if (data.meter === 'model.cached_input_tokens') used.cached = data.quantity;
    else if (data.meter === 'model.output_tokens') used.output = data.quantity;
    else return null;
    this.#cost += Number(data.cost);
    return {
      sessionUpdate: 'usage_update',
      used: used.input + used.cached + used.output,
      size: 0,
      cost: { amount: Number(this.#cost.toFixed(6)), currency: 'USD' },
    };
  }
}

/** Takes `next` into `last` when both are text of one message, or the later one replaces the earlier one. */
function joined(last: SessionUpdate, next: SessionUpdate): boolean {
  if (last.sessionUpdate === 'usage_update' && next.sessionUpdate === 'usage_update') {
    Object.assign(last, next);
    return true;
  }
  if (last.sessionUpdate !== 'agent_message_chunk' && last.sessionUpdate !== 'agent_thought_chunk')
    return false;
  if (next.sessionUpdate !== last.sessionUpdate || next.messageId !== last.messageId) return false;
  if (next._meta || last._meta) return false;
  if (last.content.type !== 'text' || next.content.type !== 'text') return false;
  last.content = { ...last.content, text: last.content.text + next.content.text };
  return true;
}

function agentText(messageId: string, text: string): SessionUpdate {
  return { sessionUpdate: 'agent_message_chunk', messageId, content: { type: 'text', text } };
}

function userChunks({ data }: EventOf<'message.created'>): SessionUpdate[] {
  const parts = (data.parts ?? []).map((part, index) =>
    blockOf(part, `berth:message/${data.id}/${index + 1}`),
  );
  const blocks = data.content === '' ? parts : [{ type: 'text' as const, text: data.content }, ...parts];
  return blocks.map((content) => ({ sessionUpdate: 'user_message_chunk', messageId: data.id, content }));
}

/**
 * What the agent makes beside its answer, as blocks of a message of its own. Which artifact it is stands in `_meta`, as
 * it does when a harness makes it (docs/harness.md).
 */
function artifactChunks({ data }: EventOf<'artifact.updated'>): SessionUpdate[] {
  const { runId, artifactId, name, description, append, lastChunk, parts } = data;
  const messageId = `${runId}/${artifactId}`;
  return parts.map((part, index) => ({
    sessionUpdate: 'agent_message_chunk',
    messageId,
    content: blockOf(part, `berth:artifact/${encodeURIComponent(artifactId)}/${index + 1}`),
    _meta: {
      'berth.dev': {
        artifact: {
          id: artifactId,
          name,
          description,
          append: append || index > 0,
          lastChunk: lastChunk && index === parts.length - 1,
        },
      },
    },
  }));
}

function toolCall({ data }: EventOf<'tool.started'>): SessionUpdate {
  return {
    sessionUpdate: 'tool_call',
    toolCallId: data.toolCallId,
    title: data.title,
    kind: kindOf(data.kind),
    status: statusOf[data.status],
    ...rawOf(data),
  };
}

function toolCallUpdate({ data }: EventOf<'tool.updated' | 'tool.finished'>): SessionUpdate {
  const text = textOf(data.output);
  return {
    sessionUpdate: 'tool_call_update',
    toolCallId: data.toolCallId,
    title: data.title,
    kind: kindOf(data.kind),
    status: statusOf[data.status],
    ...rawOf(data),
    ...(text !== null && { content: [{ type: 'content', content: { type: 'text', text } }] }),
  };
}

function rawOf({ input, output }: { input?: unknown; output?: unknown }) {
  return {
    ...(input !== undefined && { rawInput: input }),
    ...(output !== undefined && { rawOutput: output }),
  };
}

/** What an editor shows of a tool's output. */
function textOf(output: unknown): string | null {
  if (output === undefined || output === null || output === '') return null;
  return typeof output === 'string' ? output : JSON.stringify(output, null, 2);
}

/** A call that was cancelled, or whose end nobody saw, did not succeed. */
const statusOf: Record<ToolStatus, ToolCallStatus> = {
  pending: 'pending',
  running: 'in_progress',
  completed: 'completed',
  failed: 'failed',
  cancelled: 'failed',
  unknown: 'failed',
};

const kinds = new Set<string>([
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
  'fetch',
  'switch_mode',
] satisfies ToolKind[]);

function kindOf(kind: string): ToolKind {
  return kinds.has(kind) ? (kind as ToolKind) : 'other';
}

function planEntry(entry: { content: string; status: string; priority: string }): PlanEntry {
  const { content, status, priority } = entry;
  return {
    content,
    status: status === 'completed' || status === 'in_progress' ? status : 'pending',
    priority: priority === 'high' || priority === 'low' ? priority : 'medium',
  };
}

/** A turn that another surface began has no response here, so that its end is told by an update. */
function endOfRun(event: EventOf<'run.completed' | 'run.failed' | 'run.cancelled'>): SessionUpdate {
  const { runId } = event.data;
  const status = event.type.slice('run.'.length);
  const error = event.type === 'run.failed' ? { error: event.data.error } : {};
  return {
    sessionUpdate: 'session_info_update',
    updatedAt: event.at.toISOString(),
    _meta: { 'berth.dev': { run: { id: runId, status, ...error } } },
  };
}
