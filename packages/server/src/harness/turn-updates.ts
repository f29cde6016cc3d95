import type { SessionUpdate } from '@agentclientprotocol/sdk';
import type { HarnessUpdate } from '../domain/ports/harness.ts';
import { readArtifact } from './artifacts.ts';
import { boundedText, isRecord } from './clean.ts';
import type { Json } from './clean.ts';
import { eventCost } from './control/reading-pace.ts';
import { blockText, ToolCall } from './tool-call.ts';
import type { Size, ToolUpdate } from './tool-call.ts';
import { TurnBudget } from './turn-budget.ts';

type Kind = SessionUpdate['sessionUpdate'];

/** More calls than any honest turn makes; what comes after is not shown. */
const maxToolCalls = 5000;
const maxPlanEntries = 200;

/** After a call's event a text is joined to all before it, which takes time by their length: as so many characters each. */
const joinedCharWeight = 1 / 8;
/** What is told at once of the calls that a turn leaves open, before everything else has its turn. */
const endSliceChars = 1024 * 1024;

/**
 * Makes our updates of Agent Client Protocol's `session/update` (protocol version 1). A tool's updates there name only
 * what changed; ours are whole, so the state of every open call is kept here. Unknown kinds and wrong shapes are ignored.
 */
export class TurnUpdates {
  readonly #emit: (update: HarnessUpdate) => void;
  readonly #onExcess: (why: string) => void;
  readonly #charge: (chars: number) => void;
  readonly #budget = new TurnBudget();
  #isOver = false;
  /** What was told last: texts of one kind become one event. */
  #last: HarnessUpdate['kind'] | null = null;
  #textChars = 0;
  readonly #open = new Map<string, ToolCall>();
  readonly #finished = new Set<string>();

  /**
   * `onExcess` is told once, when the harness tells more than a turn may; nothing is emitted after it but ends of calls. `charge`
   * hears what the telling costs: a short line can tell a whole call again.
   */
  constructor(
    emit: (update: HarnessUpdate) => void,
    onExcess: (why: string) => void,
    charge: (chars: number) => void,
  ) {
    this.#emit = emit;
    this.#onExcess = onExcess;
    this.#charge = charge;
  }

  /** The calls of this turn that another process of the service has told. */
  restore(tools: readonly ToolUpdate[]): void {
    for (const tool of tools) {
      if (tool.phase === 'finished') this.#finished.add(tool.toolCallId);
      else this.#open.set(tool.toolCallId, new ToolCall(tool));
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

  /**
   * A call that the harness never finished is finished when its turn ends, so that nobody waits for it. There may be thousands of
   * large ones: `rest` is waited for between slices of them.
   */
  async end(rest: () => Promise<void>): Promise<void> {
    let sliceChars = 0;
    for (const call of [...this.#open.values()]) {
      const whole = call.told({ phase: 'finished', status: 'failed' });
      const { chars, values } = call.size(whole);
      const { input: _input, output: _output, ...short } = whole;
      // Input and output of very many open calls would be told once more: beyond a turn's measure without them.
      this.#isOver ||= this.#budget.spend(whole, chars) !== null;
      this.#emit(this.#isOver ? short : whole);
      sliceChars += this.#isOver ? eventCost(0, 0) : eventCost(chars, values);
      if (sliceChars < endSliceChars) continue;
      sliceChars = 0;
      await rest();
    }
    this.#open.clear();
  }

  /** False: nothing more of this turn is recorded. */
  mayRecord(): boolean {
    if (!this.#isOver) this.#check(this.#budget.spendEvent());
    return !this.#isOver;
  }

  #tell(
    update: HarnessUpdate,
    { chars, values }: Size = { chars: JSON.stringify(update).length, values: 0 },
  ): void {
    if (!this.#check(this.#budget.spend(update, chars))) return;
    this.#last = update.kind;
    this.#charge(eventCost(chars, values));
    this.#emit(update);
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
    if (text === '' || !this.#check(this.#budget.spend({ kind, text }, text.length))) return;
    if (this.#last !== kind) this.#charge(eventCost(0, 0));
    if (kind === 'text') {
      if (this.#last !== 'text') this.#charge(this.#textChars * joinedCharWeight);
      this.#textChars += text.length;
    }
    this.#last = kind;
    this.#emit({ kind, text });
  }

  #tool(update: Json): void {
    const id = update['toolCallId'];
    if (typeof id !== 'string' || id === '' || id.length > 200 || this.#finished.has(id)) return;
    if (this.#open.size + this.#finished.size >= maxToolCalls) return;
    const before = this.#open.get(id);
    const call = before ?? new ToolCall(emptyTool(id));
    call.merge(update);
    const { status } = call;
    const isDone = status === 'completed' || status === 'failed';
    if (!before) this.#tellCall(call, { phase: 'started', status: isDone ? 'running' : status });
    if (isDone) {
      this.#open.delete(id);
      this.#finished.add(id);
      return this.#tellCall(call, { phase: 'finished', status });
    }
    this.#open.set(id, call);
    if (before) this.#tellCall(call, { phase: 'updated', status });
  }

  #tellCall(call: ToolCall, as: Pick<ToolUpdate, 'phase' | 'status'>): void {
    const update = call.told(as);
    this.#tell(update, call.size(update));
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
