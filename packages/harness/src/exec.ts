import type { Readable } from 'node:stream';
import {
  dataFrame,
  eofFrame,
  frameKinds,
  jsonFrame,
  maxPayloadBytes,
  maxStreams,
  newFrame,
  windowBytes,
  windowFrame,
} from './frames.ts';
import type { Channel } from './frames.ts';
import { startCommand, StartError } from './exec-start.ts';
import type { ExecRequest, Started } from './exec-start.ts';

/** A process that ended may leave others that hold its output, a server in the background for example. */
const outputGraceMs = 200;

/** One way out of a command: what the service has not asked for yet stays in the pipe. */
class Outlet {
  readonly #channel: Channel;
  readonly #source: Readable;
  readonly #send: (frame: Buffer) => void;
  readonly #stream: number;
  #credit = windowBytes;
  #waiting: Buffer[] = [];
  /** Resolves when everything was sent, the end too. */
  readonly done: Promise<void>;
  #isEnding = false;
  #isDone = false;
  #isUnwanted = false;
  #finish!: () => void;

  constructor(stream: number, channel: Channel, source: Readable, send: (frame: Buffer) => void) {
    this.#stream = stream;
    this.#channel = channel;
    this.#source = source;
    this.#send = send;
    this.done = new Promise((resolve) => (this.#finish = resolve));
    source.on('data', (chunk: Buffer) => {
      if (this.#isEnding || this.#isUnwanted) return;
      this.#waiting.push(chunk);
      this.#flush();
    });
    source.on('error', () => this.end());
    source.on('close', () => this.end());
  }

  more(bytes: number): void {
    this.#credit += bytes;
    this.#flush();
  }

  /** Nobody wants any more of it. */
  discard(): void {
    this.#isUnwanted = true;
    this.#waiting = [];
    this.#source.resume();
    this.#flush();
  }

  /** What comes later is dropped, but still read: closing the pipe would kill what was left in the background. */
  end(): void {
    this.#isEnding = true;
    this.#source.resume();
    this.#flush();
  }

  #flush(): void {
    if (this.#isDone) return;
    while (this.#waiting.length > 0 && this.#credit > 0) {
      const first = this.#waiting[0]!;
      const part = first.subarray(0, Math.min(first.length, this.#credit, maxPayloadBytes - 1));
      if (part.length === first.length) this.#waiting.shift();
      else this.#waiting[0] = first.subarray(part.length);
      this.#credit -= part.length;
      this.#send(dataFrame(this.#stream, this.#channel, part));
    }
    if (this.#waiting.length > 0) return void (this.#isEnding || this.#source.pause());
    if (!this.#isEnding) return void this.#source.resume();
    this.#send(eofFrame(this.#stream, this.#channel));
    this.#isDone = true;
    this.#finish();
  }
}

/** A command of the service, from its start to its exit. */
class ExecStream {
  readonly #id: number;
  readonly #send: (frame: Buffer) => void;
  readonly #command: Started;
  readonly #outlets: Outlet[];

  constructor(id: number, command: Started, send: (frame: Buffer) => void, onEnd: () => void) {
    this.#id = id;
    this.#send = send;
    this.#command = command;
    send(newFrame(frameKinds.started, id, 0));
    this.#outlets = command.outputs.map((source, at) => new Outlet(id, at === 0 ? 1 : 2, source, send));
    command.input.on('error', () => undefined);
    void this.#end().then(onEnd);
  }

  data(bytes: Buffer): void {
    const copy = Buffer.from(bytes);
    const answer = () => this.#send(windowFrame(this.#id, 0, copy.length));
    const { input } = this.#command;
    if (input.writable) input.write(copy, answer);
    else answer();
  }

  eof(): void {
    this.#command.endInput();
  }

  window(channel: number, bytes: number): void {
    this.#outlets[channel - 1]?.more(bytes);
  }

  signal(name: string): void {
    this.#command.signal(name);
  }

  resize(columns: number, rows: number): void {
    this.#command.resize(columns, rows);
  }

  close(): void {
    for (const outlet of this.#outlets) outlet.discard();
    this.#command.endAll();
  }

  async #end(): Promise<void> {
    const exit = await this.#command.exited;
    const timer = setTimeout(() => this.#outlets.forEach((outlet) => outlet.end()), outputGraceMs);
    await Promise.all(this.#outlets.map((outlet) => outlet.done));
    clearTimeout(timer);
    this.#send(jsonFrame(frameKinds.exit, this.#id, exit));
  }
}

/** The commands that the service runs beside the harness; all of them end with the connection. */
export class ExecStreams {
  readonly #send: (frame: Buffer) => void;
  readonly #env: () => Promise<Record<string, string>>;
  readonly #workspace: string;
  readonly #streams = new Map<number, ExecStream>();
  #starting = 0;

  constructor(options: {
    send: (frame: Buffer) => void;
    env: () => Promise<Record<string, string>>;
    workspace: string;
  }) {
    this.#send = options.send;
    this.#env = options.env;
    this.#workspace = options.workspace;
  }

  frame(kind: number, id: number, payload: Buffer): void {
    const stream = this.#streams.get(id);
    switch (kind) {
      case frameKinds.exec:
        return void this.#start(id, JSON.parse(payload.toString('utf8')) as ExecRequest);
      case frameKinds.data:
        return stream?.data(payload.subarray(1));
      case frameKinds.eof:
        return stream?.eof();
      case frameKinds.window:
        return stream?.window(payload[0]!, payload.readUInt32BE(1));
      case frameKinds.signal:
        return stream?.signal(payload.toString('utf8'));
      case frameKinds.resize:
        return stream?.resize(payload.readUInt16BE(0), payload.readUInt16BE(2));
      case frameKinds.close:
        return stream?.close();
      default:
    }
  }

  endAll(): void {
    for (const stream of this.#streams.values()) stream.close();
  }

  async #start(id: number, request: ExecRequest): Promise<void> {
    this.#starting += 1;
    try {
      if (this.#streams.size + this.#starting > maxStreams) {
        throw new StartError('limit', `At most ${maxStreams} commands run in a sandbox at once.`);
      }
      const env = { ...(await this.#env()), ...request.env };
      const command = await startCommand({ ...request, env, cwd: request.cwd ?? this.#workspace });
      const stream = new ExecStream(id, command, this.#send, () => this.#streams.delete(id));
      this.#streams.set(id, stream);
    } catch (error) {
      const code = error instanceof StartError ? error.code : 'failed';
      this.#send(jsonFrame(frameKinds.refused, id, { code, message: (error as Error).message }));
    } finally {
      this.#starting -= 1;
    }
  }
}
