import type { ContentBlock, SessionUpdate, ToolCallContent, ToolCallStatus } from '@agentclientprotocol/sdk';
import type { HarnessUpdate } from '../domain/ports/harness.ts';
import { readArtifact } from './artifacts.ts';
import { bounded, boundedText, isRecord } from './clean.ts';
import type { Json } from './clean.ts';
import { TurnBudget } from './turn-budget.ts';

type ToolUpdate = Extract<HarnessUpdate, { kind: 'tool' }>;
type Kind = SessionUpdate['sessionUpdate'];

const maxTitleChars = 500;
const maxOutputChars = 64 * 1024;
/** More calls than any honest turn makes; what comes after is not shown. */
const maxToolCalls = 5000;
const maxPlanEntries = 200;

const statuses: Record<ToolCallStatus, ToolUpdate['status']> = {
  pending: 'pending',
  in_progress: 'running',
  completed: 'completed',
  failed: 'failed',
};

/**
 * Makes our updates of Agent Client Protocol's `session/update` (protocol version 1). A tool's updates there name only
 * what changed; ours are whole, so the state of every open call is kept here. Unknown kinds and wrong shapes are ignored.
 */
export class TurnUpdates {
  readonly #emit: (update: HarnessUpdate) => void;
  readonly #onExcess: (why: string) => void;
  readonly #budget = new TurnBudget();
  #isOver = false;
  readonly #open = new Map<string, ToolUpdate>();
  readonly #finished = new Set<string>();

  /** `onExcess` is told once, when the harness tells more than a turn may; nothing is emitted after it but ends of calls. */
  constructor(emit: (update: HarnessUpdate) => void, onExcess: (why: string) => void) {
    this.#emit = emit;
    this.#onExcess = onExcess;
  }

  /** The calls of this turn that another process of the service has told. */
  restore(tools: readonly ToolUpdate[]): void {
    for (const tool of tools) {
      if (tool.phase === 'finished') this.#finished.add(tool.toolCallId);
      else this.#open.set(tool.toolCallId, tool);
    }
  }

  /** `lineChars`: what the line counts for that it came in. */
  take(update: unknown, lineChars: number): void {
    if (this.#isOver || !isRecord(update) || !this.#check(this.#budget.spendLine(lineChars))) return;
    switch (update['sessionUpdate'] as Kind) {
      case 'agent_message_chunk':
        return this.#message(update);
      case 'agent_thought_chunk':
        return this.#chunk('thought', update['content']);
      case 'tool_call':
      case 'tool_call_update':
        return this.#tool(update);
      case 'plan':
        return this.#plan(update['entries']);
      default:
    }
  }

  /** A call that the harness never finished is finished when its turn ends, so that nobody waits for it. */
  end(): void {
    for (const tool of this.#open.values()) {
      const whole: ToolUpdate = { ...tool, phase: 'finished', status: 'failed' };
      const { input: _input, output: _output, ...short } = whole;
      // Input and output of very many open calls would be told once more: beyond a turn's measure without them.
      this.#isOver ||= this.#budget.spend(whole) !== null;
      this.#emit(this.#isOver ? short : whole);
    }
    this.#open.clear();
  }

  /** False: nothing more of this turn is recorded. */
  mayRecord(): boolean {
    if (!this.#isOver) this.#check(this.#budget.spendEvent());
    return !this.#isOver;
  }

  #tell(update: HarnessUpdate): void {
    if (this.#check(this.#budget.spend(update))) this.#emit(update);
  }

  #check(excess: string | null): boolean {
    if (excess === null) return true;
    this.#isOver = true;
    this.#onExcess(excess);
    return false;
  }

  #message(update: Json): void {
    const artifact = readArtifact(update);
    if (artifact === null) return this.#chunk('text', update['content']);
    if (artifact !== 'malformed') this.#tell(artifact);
  }

  #chunk(kind: 'text' | 'thought', content: unknown): void {
    const text = blockText(content);
    if (text !== '') this.#tell({ kind, text });
  }

  #tool(update: Json): void {
    const id = update['toolCallId'];
    if (typeof id !== 'string' || id === '' || id.length > 200 || this.#finished.has(id)) return;
    if (this.#open.size + this.#finished.size >= maxToolCalls) return;
    const before = this.#open.get(id);
    const now = merge(before ?? emptyTool(id), update);
    const isDone = now.status === 'completed' || now.status === 'failed';
    if (!before) this.#tell({ ...now, phase: 'started', status: isDone ? 'running' : now.status });
    if (isDone) {
      this.#open.delete(id);
      this.#finished.add(id);
      return this.#tell({ ...now, phase: 'finished' });
    }
    this.#open.set(id, now);
    if (before) this.#tell({ ...now, phase: 'updated' });
  }

  #plan(entries: unknown): void {
    if (!Array.isArray(entries)) return;
    const known = entries.slice(0, maxPlanEntries).filter(isRecord);
    this.#tell({
      kind: 'plan',
      entries: known.map((entry) => ({
        content: boundedText(entry['content'], 500),
        status: boundedText(entry['status'], 50),
        priority: boundedText(entry['priority'], 50),
      })),
    });
  }
}

function emptyTool(toolCallId: string): ToolUpdate {
  return {
    kind: 'tool',
    phase: 'started',
    toolCallId,
    title: toolCallId,
    toolKind: 'other',
    status: 'pending',
  };
}

function merge(tool: ToolUpdate, update: Json): ToolUpdate {
  const { title, kind, status, rawInput, rawOutput, content } = update;
  const now: ToolUpdate = { ...tool };
  if (typeof title === 'string' && title !== '') now.title = boundedText(title, maxTitleChars);
  if (typeof kind === 'string') now.toolKind = boundedText(kind, 50);
  if (typeof status === 'string' && Object.hasOwn(statuses, status))
    now.status = statuses[status as ToolCallStatus];
  if (rawInput !== undefined && rawInput !== null) now.input = bounded(rawInput);
  const shown = contentText(content);
  if (shown !== '') now.output = shown;
  else if (rawOutput !== undefined && rawOutput !== null) now.output = bounded(rawOutput);
  return now;
}

function contentText(content: unknown): string {
  if (!Array.isArray(content)) return '';
  const parts = content.filter(isRecord).map((part) => {
    const type = part['type'] as ToolCallContent['type'];
    if (type === 'content') return blockText(part['content']);
    return type === 'diff' ? `Changed ${boundedText(part['path'], 1000)}` : '';
  });
  return boundedText(parts.filter((part) => part !== '').join('\n'), maxOutputChars);
}

function blockText(block: unknown): string {
  if (!isRecord(block)) return '';
  const type = block['type'] as ContentBlock['type'];
  if (type === 'text') return typeof block['text'] === 'string' ? block['text'] : '';
  if (type === 'resource_link')
    return `[${boundedText(block['name'], 500)}](${boundedText(block['uri'], 2000)})`;
  if (type === 'resource' && isRecord(block['resource']))
    return boundedText(block['resource']['text'], maxOutputChars);
  return '';
}
