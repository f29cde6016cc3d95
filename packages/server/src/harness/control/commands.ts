import type { Duplex } from 'node:stream';
import { Bucket } from '../../domain/bucket.ts';
import { limits } from '../../domain/limits.ts';
import { SandboxControlError } from '../../domain/ports/sandbox-control.ts';
import type {
  SandboxCommand,
  SandboxControl,
  SandboxProcess,
  SandboxTarget,
} from '../../domain/ports/sandbox-control.ts';
import { Command } from './command.ts';
import { Connection } from './connection.ts';
import { frameKinds, jsonFrame, maxConnections, maxPayloadBytes, maxStreams } from './frames.ts';

/** So many looks make up the time for an answer: a service that stood still itself has missed all but one of them. */
const looks = 12;

export interface CommandsOptions {
  send: (frame: Buffer) => void;
  /** The launcher has left something unanswered for this time: a process inside may have stopped it. */
  unansweredMs: number;
  onSilent: () => void;
}

/** The commands that run in one sandbox, and the connections to servers in it, by their streams. */
export class Commands implements SandboxControl {
  readonly #send: (frame: Buffer) => void;
  readonly #open = new Map<number, Command>();
  readonly #connections = new Set<number>();
  /** Of all streams together: endless output takes no more of the service than this, and what is inside waits in its write. */
  readonly #pace = new Bucket({
    burst: limits.sandboxOutput.burstBytes,
    perSecond: limits.sandboxOutput.bytesPerSecond,
  });
  readonly #options: CommandsOptions;
  /** How often each was looked at while its answer was owed. */
  #owed = new Map<Command, number>();
  #watch: NodeJS.Timeout | null = null;
  #isFrozen: () => boolean = () => false;
  #lastId = 0;
  #isReady = false;

  constructor(options: CommandsOptions) {
    this.#options = options;
    this.#send = options.send;
  }

  /** How many commands there are. */
  get size(): number {
    return this.#open.size - this.#connections.size;
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** The sandbox: in one that is frozen nobody can answer. */
  set sandbox(sandbox: { readonly isFrozen: boolean }) {
    this.#isFrozen = () => sandbox.isFrozen;
  }

  /** The channel is open: before it nothing can be started. */
  set isReady(isReady: boolean) {
    this.#isReady = isReady;
  }

  async exec({ command, env = {}, cwd, terminal }: SandboxCommand): Promise<SandboxProcess> {
    if (this.size >= maxStreams) {
      throw new SandboxControlError('limit', `At most ${maxStreams} commands run in a sandbox at once.`);
    }
    const request = { command, env, ...(cwd === undefined ? {} : { cwd }), ...(terminal && { terminal }) };
    const process = this.#begin(frameKinds.exec, request, terminal !== undefined);
    await process.started;
    return process;
  }

  async connect({ port, command }: SandboxTarget): Promise<Duplex> {
    if (this.#connections.size >= maxConnections) {
      throw new SandboxControlError(
        'limit',
        `At most ${maxConnections} connections lead to its servers at once.`,
      );
    }
    // Standard error is what a connection has not.
    const process = this.#begin(frameKinds.connect, { port, command }, true);
    const id = process.id;
    this.#connections.add(id);
    void process.exited.then(() => this.#connections.delete(id));
    await process.started;
    return new Connection(process);
  }

  #begin(
    kind: typeof frameKinds.exec | typeof frameKinds.connect,
    request: unknown,
    isOneStream: boolean,
  ): Command {
    if (!this.#isReady) throw new SandboxControlError('gone', 'The sandbox has ended.', true);
    const id = ++this.#lastId;
    const frame = jsonFrame(kind, id, request);
    if (frame.length > maxPayloadBytes) {
      throw new SandboxControlError('failed', 'The command and its environment are longer than 64 KiB.');
    }
    const process = new Command(id, isOneStream, this.#send, this.#pace);
    this.#open.set(id, process);
    void process.exited.then(() => this.#open.delete(id));
    this.#send(frame);
    this.#watch ??= setInterval(() => this.#look(), this.#options.unansweredMs / looks).unref();
    return process;
  }

  #look(): void {
    const owed = this.#isFrozen() ? [] : [...this.#open.values()].filter((process) => process.isOwed);
    this.#owed = new Map(owed.map((process) => [process, (this.#owed.get(process) ?? 0) + 1]));
    if (this.#open.size === 0 && this.#watch) {
      clearInterval(this.#watch);
      this.#watch = null;
    }
    if ([...this.#owed.values()].some((count) => count > looks)) this.#options.onSilent();
  }

  has(id: number): boolean {
    return this.#open.has(id);
  }

  /** False: it does not keep to the protocol. Streams that have ended may still be spoken of for a while. */
  frame(kind: number, id: number, payload: Buffer): boolean {
    const process = this.#open.get(id);
    if (process) return process.frame(kind, payload);
    return kind >= frameKinds.started && kind <= frameKinds.exit && id >= 1 && id <= this.#lastId;
  }

  allOver(): void {
    for (const process of this.#open.values()) process.over();
  }
}
