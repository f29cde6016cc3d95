import type { Readable } from 'node:stream';
import type { SandboxProcess, SandboxProcessExit } from '../domain/ports/sandbox-control.ts';
import type { TerminalEnd, TerminalView, TerminalViewer } from './api.ts';
import { KeptBytes } from '../domain/kept-bytes.ts';

/** What a client that was away for a moment can have again. */
const KEPT_BYTES = 256 * 1024;

/**
 * A pseudo-terminal in a sandbox that outlives the connection to its client for a while. Output is counted from its
 * begin, so that a client says how far it has seen it. One client at a time; the next takes it over.
 */
export class Terminal implements TerminalView {
  readonly id: string;
  readonly agentId: string;
  readonly keyId: string;
  /** Resolves when nothing of it is left to ask for. */
  readonly over: Promise<void>;
  readonly #process: SandboxProcess;
  readonly #graceMs: number;
  readonly #kept = new KeptBytes(KEPT_BYTES);
  /** Of all output so far. */
  #written = 0;
  #viewer: TerminalViewer | null = null;
  #exit: SandboxProcessExit | null = null;
  #grace: NodeJS.Timeout | null = null;
  #finish!: () => void;
  #isOver = false;

  constructor(at: { id: string; agentId: string; keyId: string; graceMs: number }, process: SandboxProcess) {
    this.id = at.id;
    this.agentId = at.agentId;
    this.keyId = at.keyId;
    this.#graceMs = at.graceMs;
    this.#process = process;
    this.over = new Promise((resolve) => (this.#finish = resolve));
    process.stdin.on('error', () => {});
    process.stdout.on('data', (bytes: Buffer) => this.#take(bytes));
    process.stdout.on('error', () => {});
    process.stderr.resume().on('error', () => {});
    // A client that reads slowly may have the last output still before it when the shell has ended.
    void Promise.all([process.exited, ended(process.stdout)]).then(([exit]) => this.#exited(exit));
    this.#wait();
  }

  /** Its shell has ended, and it is only there for a client that may come back to learn of that. */
  get isGone(): boolean {
    return this.#exit !== null && this.#viewer === null;
  }

  attach(viewer: TerminalViewer, after: number): { offset: number; lostBytes: number } {
    this.#viewer?.ended({ kind: 'taken' });
    this.#viewer = viewer;
    if (this.#grace) clearTimeout(this.#grace);
    this.#grace = null;
    const first = this.#written - this.#kept.bytes;
    const offset = Math.min(Math.max(after, first), this.#written);
    // Told first, so that the client knows where the bytes belong that follow.
    queueMicrotask(() => {
      if (this.#viewer !== viewer) return;
      // Whoever it was taken from may have held it up.
      this.#process.stdout.resume();
      const missed = this.#kept.whole().subarray(offset - (this.#written - this.#kept.bytes));
      if (missed.length > 0) viewer.write(missed);
      if (this.#exit) this.#told(this.#exit);
    });
    return { offset, lostBytes: Math.max(0, first - after) };
  }

  detach(viewer: TerminalViewer): void {
    if (this.#viewer !== viewer) return;
    this.#viewer = null;
    this.#process.stdout.resume();
    this.#wait();
  }

  input(bytes: Buffer): boolean {
    if (this.#exit || this.#process.stdin.destroyed) return true;
    return this.#process.stdin.write(bytes);
  }

  onDrain(listener: () => void): void {
    this.#process.stdin.once('drain', listener);
  }

  /** The client takes no more for now, or takes more again. */
  hold(viewer: TerminalViewer, isHeld: boolean): void {
    if (this.#viewer !== viewer) return;
    if (isHeld) this.#process.stdout.pause();
    else this.#process.stdout.resume();
  }

  resize(columns: number, rows: number): void {
    this.#process.resize(columns, rows);
  }

  signal(name: string): void {
    this.#process.kill(name);
  }

  end(reason: 'revoked' | 'closing'): void {
    this.#viewer?.ended({ kind: reason });
    this.#viewer = null;
    this.#close();
  }

  #take(bytes: Buffer): void {
    this.#written += bytes.length;
    this.#kept.add(bytes);
    this.#viewer?.write(bytes);
  }

  #exited(exit: SandboxProcessExit): void {
    if (this.#isOver) return;
    this.#exit = exit;
    if (this.#viewer) this.#told(exit);
    // Whoever was away just then learns of it when it comes back in time.
  }

  #told(exit: SandboxProcessExit): void {
    const end: TerminalEnd = { kind: 'exit', exitCode: exit.code, signal: exit.signal };
    this.#viewer?.ended(end);
    this.#viewer = null;
    this.#close();
  }

  #wait(): void {
    this.#grace = setTimeout(() => this.#close(), this.#graceMs);
    this.#grace.unref();
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#grace) clearTimeout(this.#grace);
    if (!this.#exit) this.#process.kill('SIGKILL');
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    this.#kept.clear();
    this.#finish();
  }
}

/** Resolves when nothing more comes of a stream. Never rejects. */
function ended(stream: Readable): Promise<void> {
  return new Promise((resolve) => stream.once('end', resolve).once('close', resolve));
}
