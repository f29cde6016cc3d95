import type { Readable } from 'node:stream';
import {
  dataFrame,
  eofFrame,
  frameKinds,
  jsonFrame,
  maxConnections,
  maxPayloadBytes,
  maxStreams,
  newFrame,
  windowBytes,
  windowFrame,
} from './frames.ts';
import type { Channel } from './frames.ts';
import { startCommand, StartError } from './exec-start.ts';
import type { ExecRequest, Started } from './exec-start.ts';
import type { ConnectRequest, WebServer } from './web.ts';

/** A process that ended may leave others that hold its output, a server in the background for example. */
const outputGraceMs = 200;
/** More than waits between two processes: what comes beyond it after the end of a command is of others. */
const maxLeftBytes = 32 * 1024 * 1024;

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
  /** What may still be of the command, once that has ended. */
  #leftBytes: number | null = null;
  #grace: NodeJS.Timeout | null = null;
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
      if (this.#leftBytes !== null) this.#leftBytes -= chunk.length;
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

  /**
   * The command has ended. What it wrote may wait for as long as the service does not ask for it; when all of that was
   * read, others that hold its output get a moment to end too.
   */
  endSoon(): void {
    this.#leftBytes = maxLeftBytes;
    this.#flush();
  }

  /** What comes later is dropped, but still read: closing the pipe would kill what was left in the background. */
  end(): void {
    this.#isEnding = true;
    this.#stopGrace();
    this.#source.resume();
    this.#flush();
  }

  #startGrace(): void {
    if (this.#grace !== null) return;
    const grace = setTimeout(() => {
      // However late this is, what has come meanwhile is read before an immediate.
      setImmediate(() => this.#grace === grace && this.end());
    }, outputGraceMs);
    this.#grace = grace;
  }

  #stopGrace(): void {
    if (this.#grace !== null) clearTimeout(this.#grace);
    this.#grace = null;
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
    if (this.#waiting.length > 0) {
      this.#stopGrace();
      return void (this.#isEnding || this.#source.pause());
    }
    if (!this.#isEnding) {
      if (this.#leftBytes !== null && this.#leftBytes < 0) return this.end();
      if (this.#leftBytes !== null) this.#startGrace();
      return void this.#source.resume();
    }
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
    for (const outlet of this.#outlets) outlet.endSoon();
    await Promise.all(this.#outlets.map((outlet) => outlet.done));
    this.#send(jsonFrame(frameKinds.exit, this.#id, exit));
  }
}

export interface ExecOptions {
  send: (frame: Buffer) => void;
  env: () => Promise<Record<string, string>>;
  workspace: string;
  /** A line for people, in the sandbox's log. */
  log: (line: string) => void;
  /** When the agent's own processes began. */
  begunMs: number;
}

/** The commands that the service runs beside the harness, and its connections to servers; all end with the channel. */
export class ExecStreams {
  readonly #options: ExecOptions;
  readonly #streams = new Map<number, ExecStream>();
  /** Of both kinds, those that are being started too. */
  readonly #counts = { command: 0, connection: 0 };
  /** Of channels that have ended: what was still being started for one of them ends as well. */
  #ended = 0;
  #web: Promise<WebServer> | null = null;

  constructor(options: ExecOptions) {
    this.#options = options;
  }

  frame(kind: number, id: number, payload: Buffer): void {
    const stream = this.#streams.get(id);
    switch (kind) {
      case frameKinds.exec: {
        const request = JSON.parse(payload.toString('utf8')) as ExecRequest;
        return void this.#start(id, 'command', () => this.#exec(request));
      }
      case frameKinds.connect: {
        const request = JSON.parse(payload.toString('utf8')) as ConnectRequest;
        return void this.#start(id, 'connection', () => this.#connect(request));
      }
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
    this.#ended += 1;
    for (const stream of this.#streams.values()) stream.close();
  }

  async #start(id: number, what: 'command' | 'connection', start: () => Promise<Started>): Promise<void> {
    const counts = this.#counts;
    const ended = this.#ended;
    counts[what] += 1;
    try {
      const most = what === 'command' ? maxStreams : maxConnections;
      if (counts[what] > most) throw new StartError('limit', `At most ${most} ${what}s at once.`);
      const started = await start();
      if (ended !== this.#ended) {
        counts[what] -= 1;
        return started.endAll();
      }
      const stream = new ExecStream(id, started, this.#options.send, () => {
        this.#streams.delete(id);
        counts[what] -= 1;
      });
      this.#streams.set(id, stream);
    } catch (error) {
      counts[what] -= 1;
      const code = error instanceof StartError ? error.code : 'failed';
      this.#options.send(jsonFrame(frameKinds.refused, id, { code, message: (error as Error).message }));
    }
  }

  async #exec(request: ExecRequest): Promise<Started> {
    const { env, workspace } = this.#options;
    const whole = { ...(await env()), ...request.env };
    return startCommand({ ...request, env: whole, cwd: request.cwd ?? workspace });
  }

  async #connect(request: ConnectRequest): Promise<Started> {
    this.#web ??= import('./web.ts').then(({ WebServer }) => new WebServer(this.#options));
    return (await this.#web).connect(request);
  }
}
