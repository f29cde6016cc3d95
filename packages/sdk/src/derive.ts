import type { Artifact, Event, Message, Run } from './types.ts';

export interface ToolSpan {
  runId: string;
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
  /** Calls of tools in order of their begin, under a key of their own: ids may come again in another attempt or run. */
  tools: Map<string, ToolSpan>;
  /** Keys in `tools` of calls that have not ended, by run and call. */
  openTools: Map<string, string>;
  /** What runs have made, by run and then by artifact, each in order of their first appearance. */
  artifacts: Map<string, Map<string, Artifact>>;
  /** Status of each run seen, by id. */
  runs: Map<string, Run['status']>;
  /** seq of the last event taken in. */
  seq: number;
}

const statusAfter: Record<string, Run['status']> = {
  'run.queued': 'queued',
  'run.started': 'running',
  'run.awaiting_input': 'awaiting_input',
  'run.resumed': 'running',
  'run.retrying': 'queued',
  'run.completed': 'completed',
  'run.failed': 'failed',
  'run.cancelled': 'cancelled',
};

export function emptyView(): View {
  return {
    messages: new Map(),
    tools: new Map(),
    openTools: new Map(),
    artifacts: new Map(),
    runs: new Map(),
    seq: 0,
  };
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
  } else if (event.type === 'artifact.updated') {
    applyArtifact(view, event);
  } else if (statusAfter[event.type]) {
    view.runs.set(data['runId']!, statusAfter[event.type]!);
    // What an interrupted attempt had streamed is void; the next one streams under an id of its own.
    if (event.type === 'run.retrying' && data['discardedMessageId'])
      view.messages.delete(data['discardedMessageId']);
    if (event.type === 'run.retrying') view.artifacts.delete(data['runId']!);
  }
  return view;
}

function applyArtifact(view: View, event: Event): void {
  const { runId, append, artifactId, name, description, parts } = event.data as unknown as Artifact & {
    runId: string;
    append: boolean;
  };
  const made = view.artifacts.get(runId) ?? new Map<string, Artifact>();
  const before = made.get(artifactId);
  view.artifacts.set(runId, made);
  made.set(artifactId, {
    artifactId,
    name: name ?? before?.name ?? null,
    description: description ?? before?.description ?? null,
    parts: append && before ? [...before.parts, ...parts] : parts,
  });
}

function applyTool(view: View, event: Event): void {
  const data = event.data as {
    runId: string;
    toolCallId: string;
    title: string;
    kind: string;
    status: string;
    input?: unknown;
    output?: unknown;
  };
  const open = view.openTools.get(`${data.runId} ${data.toolCallId}`);
  const key = event.type === 'tool.started' || open === undefined ? `${data.toolCallId} ${event.seq}` : open;
  const before = view.tools.get(key);
  view.tools.set(key, {
    runId: data.runId,
    toolCallId: data.toolCallId,
    title: data.title,
    kind: data.kind,
    status: data.status,
    input: data.input ?? before?.input,
    output: data.output ?? before?.output,
    startedAt: before?.startedAt ?? event.at,
    endedAt: event.type === 'tool.finished' ? event.at : null,
  });
  if (event.type === 'tool.finished') view.openTools.delete(`${data.runId} ${data.toolCallId}`);
  else view.openTools.set(`${data.runId} ${data.toolCallId}`, key);
}
