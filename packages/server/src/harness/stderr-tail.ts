const maxLineChars = 2000;
const maxNotes = 5;

/**
 * Reads a sandbox's stderr and keeps the launcher's own lines (`berth: …`), for the log and for error messages. All other
 * lines are dropped: they may hold anything, the agent's secrets too.
 */
export class StderrTail {
  readonly #onNote: (line: string) => void;
  readonly #notes: string[] = [];
  #rest = '';

  constructor(onNote: (line: string) => void) {
    this.#onNote = onNote;
  }

  push(chunk: Buffer): void {
    const parts = (this.#rest + chunk.toString('utf8')).split('\n');
    this.#rest = (parts.pop() ?? '').slice(-maxLineChars);
    for (const part of parts) this.#line(part.slice(0, maxLineChars));
  }

  notes(): string {
    if (this.#rest !== '') this.#line(this.#rest);
    this.#rest = '';
    return this.#notes.join(' ');
  }

  #line(line: string): void {
    if (!line.startsWith('berth: ')) return;
    const note = line.slice('berth: '.length, 300);
    this.#onNote(note);
    this.#notes.push(note);
    if (this.#notes.length > maxNotes) this.#notes.shift();
  }
}
