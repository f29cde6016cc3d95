import { cleanText, cleanValue, TextCleaner } from '../domain/clean-text.ts';
import type { EventBody, ToolEvent } from '../domain/events.ts';
import type { HarnessUpdate } from '../domain/ports/harness.ts';

export interface TurnLogOptions {
  runId: string;
  messageId: string;
  append(...events: EventBody[]): void;
  /** Whether somebody reads along: then deltas come sooner. */
  isWatched(): boolean;
  /** Goes with what was appended last: everything before the position is in it, or in what came before. */
  told(position: number): void;
  /** What an earlier process of the service has told of this attempt. */
  restored?: RestoredLog;
}

export interface RestoredLog {
  content: string;
  /** A tool call came after the last text. */
  needsBreak: boolean;
  /** Calls without an end. */
  openTools: ToolEvent[];
  artifactIds: string[];
}

/** Deltas are joined for this long while somebody reads along, and else. The first one that somebody waits for does not. */
const WATCHED_MS = 25;
const UNWATCHED_MS = 250;

type Delta = 'message.delta' | 'thought.delta';

/** Makes events of what a harness tells in a turn. The deltas' texts, joined, are `content`. */
export class TurnLog {
  readonly #options: TurnLogOptions;
  readonly #cleaners = { 'message.delta': new TextCleaner(), 'thought.delta': new TextCleaner() };
  readonly #openTools = new Map<string, ToolEvent>();
  readonly #artifactIds = new Set<string>();
  #content = '';
  #pending = '';
  #told = 0;
  #pendingType: Delta = 'message.delta';
  #needsBreak = false;
  #hasBegun = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: TurnLogOptions) {
    this.#options = options;
    const { restored } = options;
    if (!restored) return;
    this.#content = restored.content;
    this.#needsBreak = restored.needsBreak;
    this.#hasBegun = restored.content !== '';
    for (const id of restored.artifactIds) this.#artifactIds.add(id);
    for (const tool of restored.openTools) this.#openTools.set(tool.toolCallId, tool);
  }

  /** All text of the turn so far. */
  get content(): string {
    return this.#content;
  }

  /** What the turn has made so far, in order. */
  get artifactIds(): string[] {
    return [...this.#artifactIds];
  }

  take(update: HarnessUpdate): void {
    if (this.#isClosed) return;
    switch (update.kind) {
      case 'text':
        return this.#text('message.delta', this.#cleaners['message.delta'].push(update.text));
      case 'thought':
        return this.#text('thought.delta', this.#cleaners['thought.delta'].push(update.text));
      case 'tool':
        return this.#tool(update);
      case 'artifact':
        return this.#artifact(update);
      case 'plan': {
        this.flush();
        const entries = update.entries.map(({ content, status, priority }) => ({
          content: cleanText(content),
          status: cleanText(status),
          priority: cleanText(priority),
        }));
        return this.#options.append({ type: 'plan.updated', data: { runId: this.#options.runId, entries } });
      }
    }
  }

  /** Everything that the harness told before this position of its output was taken. */
  told(position: number): void {
    // Half a character is in no event yet, and must be told again to whoever takes the turn up.
    if (Object.values(this.#cleaners).some((cleaner) => cleaner.isHolding)) return;
    this.#told = position;
    if (this.#pending === '') this.#options.told(position);
  }

  /** Hands over what waits. */
  flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#pending === '') return;
    const { runId, messageId } = this.#options;
    this.#options.append({ type: this.#pendingType, data: { runId, messageId, text: this.#pending } });
    this.#pending = '';
    this.#options.told(this.#told);
  }

  /** Something else comes next: all that was said stands before it, so that the position after it counts as told with it. */
  pause(): void {
    if (this.#isClosed) return;
    this.#text('thought.delta', this.#cleaners['thought.delta'].end());
    this.#text('message.delta', this.#cleaners['message.delta'].end());
    this.flush();
  }

  /** The last of it; what still comes is not of this turn. */
  close(): void {
    this.pause();
    this.#isClosed = true;
  }

  /** Nobody waits for ever for the end of a call: `status` says what is known of those that have none. */
  finishTools(status: 'cancelled' | 'unknown'): void {
    for (const tool of this.#openTools.values()) {
      this.#options.append({ type: 'tool.finished', data: { ...tool, status } });
    }
    this.#openTools.clear();
  }

  #text(type: Delta, text: string): void {
    if (text === '') return;
    if (type !== this.#pendingType) this.flush();
    this.#pendingType = type;
    let part = text;
    if (type === 'message.delta') {
      // What is said after a tool call is a paragraph of its own.
      if (this.#needsBreak && this.#content !== '') part = breakAfter(this.#content) + text;
      this.#needsBreak = false;
      this.#content += part;
    }
    this.#pending += part;
    const isWatched = this.#options.isWatched();
    if (isWatched && !this.#hasBegun) {
      this.#hasBegun = true;
      return this.flush();
    }
    this.#timer ??= setTimeout(() => this.flush(), isWatched ? WATCHED_MS : UNWATCHED_MS);
  }

  #artifact(update: Extract<HarnessUpdate, { kind: 'artifact' }>): void {
    this.flush();
    const { append, lastChunk, name, description } = update;
    const artifactId = cleanText(update.artifactId);
    this.#artifactIds.add(artifactId);
    this.#options.append({
      type: 'artifact.updated',
      data: {
        runId: this.#options.runId,
        artifactId,
        name: name === null ? null : cleanText(name),
        description: description === null ? null : cleanText(description),
        append,
        lastChunk,
        parts: update.parts,
      },
    });
  }

  #tool(update: Extract<HarnessUpdate, { kind: 'tool' }>): void {
    this.flush();
    this.#needsBreak = true;
    const data: ToolEvent = {
      runId: this.#options.runId,
      toolCallId: cleanText(update.toolCallId),
      title: cleanText(update.title),
      kind: cleanText(update.toolKind),
      status: update.status,
    };
    if (update.input !== undefined) data.input = cleanValue(update.input);
    if (update.output !== undefined) data.output = cleanValue(update.output);
    if (update.phase === 'finished') this.#openTools.delete(data.toolCallId);
    else this.#openTools.set(data.toolCallId, data);
    this.#options.append({ type: `tool.${update.phase}`, data });
  }
}

function breakAfter(content: string): string {
  if (content.endsWith('\n\n')) return '';
  return content.endsWith('\n') ? '\n' : '\n\n';
}
