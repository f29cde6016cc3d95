import type { Event, Message } from './types.ts';

export interface ToolSpan {
  toolCallId: string;
  title: string;
  kind: string;
  status: string;
  input: unknown;
  output: unknown;
  startedAt: string;
  endedAt: string | null;
}

/** What a viewer shows of a conversation, made from its events alone. */
export interface View {
  /** Whole messages, and the one that is being streamed, by id in order of their first appearance. */
  messages: Map<string, { role: Message['role']; runId: string; content: string; complete: boolean }>;
  tools: Map<string, ToolSpan>;
  /** Status of each run seen, by id. */
  runs: Map<string, string>;
  /** seq of the last event taken in. */
  seq: number;
}

export function emptyView(): View {
  return { messages: new Map(), tools: new Map(), runs: new Map(), seq: 0 };
}

/** Takes one event into the view. Events that were seen already and unknown types change nothing. */
export function apply(view: View, event: Event): View {
  if (event.seq <= view.seq) return view;
  view.seq = event.seq;
  const data = event.data as Record<string, string> & { status?: string };
  if (event.type === 'message.created') {
    const role = data['role'] as Message['role'];
    view.messages.set(data['id']!, {
      role,
      runId: data['runId']!,
      content: data['content']!,
      complete: true,
    });
  } else if (event.type === 'message.delta') {
    const open = view.messages.get(data['messageId']!);
    if (open) open.content += data['text'];
    else {
      view.messages.set(data['messageId']!, {
        role: 'assistant',
        runId: data['runId']!,
        content: data['text']!,
        complete: false,
      });
    }
  } else if (event.type.startsWith('tool.')) {
    applyTool(view, event);
  } else if (event.type.startsWith('run.')) {
    view.runs.set(data['runId']!, event.type.slice(4));
    // What an interrupted attempt had streamed is void; the next one streams under an id of its own.
    if (event.type === 'run.retrying' && data['discardedMessageId'])
      view.messages.delete(data['discardedMessageId']);
  }
  return view;
}

function applyTool(view: View, event: Event): void {
  const data = event.data as {
    toolCallId: string;
    title: string;
    kind: string;
    status: string;
    input?: unknown;
    output?: unknown;
  };
  const before = view.tools.get(data.toolCallId);
  view.tools.set(data.toolCallId, {
    toolCallId: data.toolCallId,
    title: data.title,
    kind: data.kind,
    status: data.status,
    input: data.input ?? before?.input,
    output: data.output ?? before?.output,
    startedAt: before?.startedAt ?? event.at,
    endedAt: event.type === 'tool.finished' ? event.at : null,
  });
}
