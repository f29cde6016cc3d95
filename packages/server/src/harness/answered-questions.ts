import type { Channel } from './channel.ts';
import type { Notes } from './control/endpoint.ts';

const noteKey = 'answered';
/** Each answer writes the note anew. Beyond it the oldest are forgotten, and may be answered once more. */
const maxNoteChars = 2000;

/** A question by its JSON-RPC id and the end of its line, or a position after that and before the next question of the same id. */
type Answered = [rpcId: string | number, end: number];

/**
 * Questions that were put to somebody and answered, and whose lines the launcher may still hold: it sends them again to the next
 * process of the service, which knows no turn that is over and would refuse what is answered. The launcher keeps them as a note.
 */
export class AnsweredQuestions {
  readonly #channel: Channel;
  #known: Answered[] = [];

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  restore(notes: Notes): void {
    const noted: unknown = notes.get(noteKey);
    if (Array.isArray(noted)) this.#known = noted.filter(isAnswered);
  }

  /** Whether a line that ends there comes again. A harness may name its next question alike. */
  has(rpcId: string | number, end: number): boolean {
    return this.#known.some(([id, until]) => id === rpcId && end <= until);
  }

  /** Just before the answer is written, and in one write with it. What ends at `acknowledged` or before never comes again. */
  add(rpcId: string | number, end: number, acknowledged: number): void {
    this.#known = this.#known.filter(([, until]) => until > acknowledged);
    this.#known.push([rpcId, end]);
    let chars = JSON.stringify(this.#known).length;
    while (chars > maxNoteChars) chars -= JSON.stringify(this.#known.shift()).length + 1;
    this.#channel.charge(chars);
    this.#channel.note(noteKey, this.#known);
  }
}

/** It comes back from inside the sandbox, and can say wrong things of the agent's own questions only. */
function isAnswered(value: unknown): value is Answered {
  if (!Array.isArray(value)) return false;
  const [rpcId, end] = value as unknown[];
  return (typeof rpcId === 'string' || typeof rpcId === 'number') && Number.isSafeInteger(end);
}
