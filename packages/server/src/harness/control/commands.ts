import { SandboxControlError } from '../../domain/ports/sandbox-control.ts';
import type { SandboxCommand, SandboxControl, SandboxProcess } from '../../domain/ports/sandbox-control.ts';
import { Command } from './command.ts';
import { frameKinds, jsonFrame, maxPayloadBytes, maxStreams } from './frames.ts';

/** The commands that run in one sandbox, by their streams. */
export class Commands implements SandboxControl {
  readonly #send: (frame: Buffer) => void;
  readonly #open = new Map<number, Command>();
  #lastId = 0;
  #isReady = false;

  constructor(send: (frame: Buffer) => void) {
    this.#send = send;
  }

  /** How many there are. */
  get size(): number {
    return this.#open.size;
  }

  /** The channel is open: before it nothing can be started. */
  set isReady(isReady: boolean) {
    this.#isReady = isReady;
  }

  async exec({ command, env = {}, cwd, terminal }: SandboxCommand): Promise<SandboxProcess> {
    if (!this.#isReady) throw new SandboxControlError('gone', 'The sandbox has ended.');
    if (this.#open.size >= maxStreams) {
      throw new SandboxControlError('limit', `At most ${maxStreams} commands run in a sandbox at once.`);
    }
    const id = ++this.#lastId;
    const request = { command, env, ...(cwd === undefined ? {} : { cwd }), ...(terminal && { terminal }) };
    const frame = jsonFrame(frameKinds.exec, id, request);
    if (frame.length > maxPayloadBytes) {
      throw new SandboxControlError('failed', 'The command and its environment are longer than 64 KiB.');
    }
    const process = new Command(id, terminal !== undefined, this.#send);
    this.#open.set(id, process);
    void process.exited.then(() => this.#open.delete(id));
    this.#send(frame);
    await process.started;
    return process;
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
