import { limits } from '../domain/limits.ts';
import type { HarnessUpdate } from '../domain/ports/harness.ts';

const MIB = 1024 * 1024;
/** Of the answer, and of the thoughts: several times what any model gives in one turn. */
const maxTextChars = MIB;
/** What one turn may put into the event log and hold in memory until it is there. */
const maxTurnChars = 64 * MIB;
/** Each event has its own cost beside its text, so that a stream of empty ones comes to an end too. */
const eventChars = 1024;
const chunkChars = 16;
/** Whatever a line says, it had to be read: one that tells nothing is not free. Half a million lines are more tokens than a turn may tell. */
const lineChars = 128;
/** The frame of a line, around what it tells. */
const freeLineChars = 256;

/**
 * Counts what a harness tells in one turn. Without an end to it one turn could fill the memory and the database of the
 * service, which belong to everybody.
 */
export class TurnBudget {
  #left = maxTurnChars;
  /** What the line that is being read has spent beyond what it told so far. */
  #lineSpent = 0;
  #artifactCharsLeft: number = limits.artifactCharsPerTurn;
  readonly #artifactIds = new Set<string>();
  readonly #textLeft = { text: maxTextChars, thought: maxTextChars };

  /**
   * A line was read; `chars` is what it counts for (`lineCost`). What it tells is counted only where that is more than the line itself. As the others: null, or why
   * it is one too many, a sentence that is safe to show.
   */
  spendLine(chars: number): string | null {
    const spent = Math.max(lineChars, chars - freeLineChars);
    this.#lineSpent = 0;
    const excess = this.#take(spent);
    this.#lineSpent = spent;
    return excess;
  }

  /** `chars`: of its JSON; of pieces of text their own count. */
  spend(update: HarnessUpdate, chars: number): string | null {
    if (update.kind === 'text' || update.kind === 'thought') {
      this.#textLeft[update.kind] -= update.text.length;
      if (this.#textLeft[update.kind] < 0) {
        return `The harness wrote more than ${maxTextChars} characters of ${update.kind} in one turn.`;
      }
      return this.#take(chunkChars + update.text.length);
    }
    if (update.kind === 'artifact') {
      this.#artifactCharsLeft -= chars;
      this.#artifactIds.add(update.artifactId);
      if (this.#artifactCharsLeft < 0) {
        return `The harness put more than ${limits.artifactCharsPerTurn} characters into artifacts in one turn.`;
      }
      if (this.#artifactIds.size > limits.artifactsPerTurn) {
        return `The harness made more than ${limits.artifactsPerTurn} artifacts in one turn.`;
      }
    }
    return this.#take(eventChars + chars);
  }

  /** For what is recorded beside updates. */
  spendEvent(): string | null {
    return this.#take(eventChars);
  }

  #take(chars: number): string | null {
    this.#left -= Math.max(0, chars - this.#lineSpent);
    this.#lineSpent = Math.max(0, this.#lineSpent - chars);
    return this.#left < 0 ? `The harness told more than ${maxTurnChars / MIB} MiB in one turn.` : null;
  }
}
