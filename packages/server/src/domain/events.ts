import type { RunError } from './errors.ts';
import type { Role } from './nouns.ts';
import type { MessagePart, Part } from './parts.ts';
import type { InputContent, InputForm, InputPurpose } from './questions.ts';

/**
 * The closed union of what happens in a conversation (API contract, section 5). Everything that a viewer sees is a
 * mapping of these. Times inside `data` are ISO 8601 texts and money is a decimal text, since data is stored as JSON
 * just as it is shown.
 */
export type EventBody =
  | { type: 'run.queued'; data: { runId: string; messageId: string } }
  | { type: 'run.started'; data: { runId: string; attempt: number; deploymentId: string | null } }
  | { type: 'run.awaiting_input'; data: { runId: string; requestId: string } }
  | { type: 'run.resumed'; data: { runId: string; requestId: string } }
  /** What `discardedMessageId` has streamed so far is void: the next attempt streams under a message id of its own. */
  | {
      type: 'run.retrying';
      data: { runId: string; attempt: number; reason: string; discardedMessageId: string | null };
    }
  /** `reply`: whether the agent calls its answer a plain message or the result of a task; some protocols tell them apart. */
  | {
      type: 'run.completed';
      data: { runId: string; messageId: string; reply: 'message' | 'task'; usage: EventUsage };
    }
  | { type: 'run.failed'; data: { runId: string; error: RunError; usage: EventUsage } }
  | { type: 'run.cancelled'; data: { runId: string; usage: EventUsage } }
  | { type: 'message.created'; data: EventMessage }
  | { type: 'message.delta'; data: { runId: string; messageId: string; text: string } }
  | { type: 'thought.delta'; data: { runId: string; messageId: string; text: string } }
  | { type: 'tool.started'; data: ToolEvent }
  | { type: 'tool.updated'; data: ToolEvent }
  | { type: 'tool.finished'; data: ToolEvent }
  | {
      type: 'permission.requested';
      data: {
        runId: string;
        requestId: string;
        toolCallId: string;
        title: string;
        options: PermissionOption[];
      };
    }
  | {
      type: 'permission.resolved';
      data: {
        runId: string;
        requestId: string;
        toolCallId: string;
        optionId: string | null;
        by: 'policy' | 'caller' | 'cancel';
      };
    }
  /** The agent asks the caller for something. */
  | {
      type: 'input.requested';
      data: {
        runId: string;
        requestId: string;
        message: string;
        form: InputForm;
        purpose: InputPurpose;
      };
    }
  | {
      type: 'input.resolved';
      data: {
        runId: string;
        requestId: string;
        action: 'accept' | 'decline' | 'cancel';
        content: InputContent | null;
        /** When the answer came as a message that had one. */
        clientMessageId?: string;
        metadata?: Record<string, unknown>;
        /** Never `policy`: nobody but the caller knows. */
        by: 'policy' | 'caller' | 'cancel';
      };
    }
  /**
   * What an agent makes beside its answer. With `append` the parts follow those that the artifact has, else they are all
   * of it. `run.retrying` voids the artifacts of the run so far, as it does its text.
   */
  | {
      type: 'artifact.updated';
      data: {
        runId: string;
        artifactId: string;
        name: string | null;
        description: string | null;
        append: boolean;
        lastChunk: boolean;
        parts: Part[];
      };
    }
  | { type: 'plan.updated'; data: { runId: string; entries: PlanEntry[] } }
  | {
      type: 'usage.recorded';
      data: { runId: string; meter: Meter; quantity: number; cost: string; model: string };
    };

export type EventType = EventBody['type'];

export interface EventMessage {
  id: string;
  agentId: string;
  conversationId: string;
  runId: string;
  role: Role;
  content: string;
  /** Absent when there are none; so are the next two. */
  parts?: MessagePart[];
  clientMessageId?: string;
  metadata?: Record<string, unknown>;
  /** Of an assistant's message: what its run made. Absent when it made nothing. */
  artifactIds?: string[];
  createdAt: string;
}

export interface EventUsage {
  inputTokens: number;
  outputTokens: number;
  cost: string;
}

export type ToolStatus = 'pending' | 'running' | 'completed' | 'failed' | 'cancelled' | 'unknown';

export interface ToolEvent {
  runId: string;
  toolCallId: string;
  title: string;
  /** Agent Client Protocol's tool kinds: read, edit, delete, move, search, execute, think, fetch, other. */
  kind: string;
  status: ToolStatus;
  input?: unknown;
  output?: unknown;
}

export interface PermissionOption {
  optionId: string;
  name: string;
  kind: string;
}

export interface PlanEntry {
  content: string;
  status: string;
  priority: string;
}

export type Meter =
  | 'model.input_tokens'
  | 'model.cached_input_tokens'
  | 'model.output_tokens'
  | 'sandbox.cpu_seconds'
  | 'sandbox.memory_gib_seconds'
  | 'egress.bytes'
  | 'webhook.events';

/** An event as stored: `seq` counts from 1 without a gap inside one conversation. */
export type ConversationEvent = EventBody & { conversationId: string; runId: string; seq: number; at: Date };

/** The events after which a run's stream ends. */
export function endsRun(type: EventType): boolean {
  return type === 'run.completed' || type === 'run.failed' || type === 'run.cancelled';
}
