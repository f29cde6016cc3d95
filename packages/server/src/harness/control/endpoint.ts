import { chmodSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import type { Pace } from '../../domain/bucket.ts';
import { Gate } from '../../domain/gate.ts';
import { countValues } from '../../domain/json-shape.ts';
import { limits } from '../../domain/limits.ts';
import { isRecord } from '../clean.ts';
import { ByteLog } from './byte-log.ts';
import { Commands } from './commands.ts';
import {
  frameKinds,
  jsonFrame,
  linesFrame,
  maxLinesBytes,
  maxPayloadBytes,
  newFrame,
  positionBytes,
  positionFrame,
} from './frames.ts';
import { Intake } from './intake.ts';
import { LineCutter } from './line-cutter.ts';
import { ReadingPace } from './reading-pace.ts';
import { SandboxLog } from './sandbox-log.ts';

const maxHelloBytes = 1024 * 1024;
/** A thousand notes with all that each may hold have fewer. */
const maxHelloValues = 100_000;
const maxLineBytes = 8 * 1024 * 1024;
/** What waits for a harness that does not read: many times the longest history. */
const maxUnreadBytes = 64 * 1024 * 1024;
/** A launcher says hello at once. */
const helloMs = 10_000;
const drainMs = 500;
const usualUnansweredMs = 60_000;
/** Dials that wait for their hello; further ones are closed at once. */
const maxGreeting = 4;
const maxNotes = 1000;
/** A turn with all the questions that may be open, whose ids are as long as they may be, has fewer. */
const maxNoteChars = 10_000;

/** No launcher ever comes here, and what follows from here on fits into a frame's position. */
const maxPosition = 2 ** 47;

export type Notes = Map<string, unknown>;

export interface EndpointEvents {
  /** A line of the harness; `end` is the position of the byte after it, `values` what `countValues` says of it. */
  onLine(line: string, end: number, values: number): void;
  /** The launcher has dialled. Lines come only after `welcome`. */
  onHello(notes: Notes): void;
  /** What is inside does not keep to the protocol; a sentence that is safe to show. */
  onBroken(why: string): void;
}

export interface EndpointOptions {
  /** Told of what came from inside and should not have thrown; the channel has ended then. */
  onFault: (error: unknown) => void;
  /** Default: a minute, twice as long as a server inside may take to listen. */
  unansweredMs?: number;
  /** Of what is read, in characters. Default: `limits.controlReading`. */
  pace?: Pace;
}

/**
 * The host's end of a sandbox's control channel (docs/design/control-channel.md). The launcher dials; one connection at a
 * time is served, and whatever is behind it counts as the agent itself. Lines in both directions are counted in bytes.
 */
export class Endpoint {
  readonly commands: Commands;
  readonly log = new SandboxLog();
  #events: EndpointEvents | null = null;
  /** What came before somebody listened: a launcher of an earlier process dials as soon as there is a socket. */
  #unheard: { hello: Notes | null; broken: string | null } = { hello: null, broken: null };
  readonly #server: Server;
  readonly #greeting = new Set<Socket>();
  readonly #lines: LineCutter;
  readonly #pace: ReadingPace;
  #sent = new ByteLog();
  /** What the launcher keeps: beyond the limit its hello would be refused. */
  readonly #noted = new Set<string>();
  /** Not sent yet, by key: of each the last, until there is somebody to send it to. */
  readonly #notes = new Map<string, { frame: Buffer; isForgotten: boolean }>();
  #socket: Socket | null = null;
  /** Of the socket. */
  #intake: Intake | null = null;
  /** Said once: whoever hears of it ends the sandbox. */
  #isBroken = false;
  #isOpen = false;
  #wasOpen = false;
  #isClosed = false;
  /** Somebody wants it open: whoever dials is let in. */
  #isAwaited = false;
  #launcherReceived = 0;
  #launcherBase = 0;
  /** What the launcher may forget: less than what was received. */
  #acknowledged = 0;

  readonly #onFault: (error: unknown) => void;

  private constructor(server: Server, options: EndpointOptions) {
    const { onFault, unansweredMs = usualUnansweredMs, pace = limits.controlReading } = options;
    this.#server = server;
    this.#onFault = onFault;
    this.#pace = new ReadingPace(pace);
    this.commands = new Commands({
      send: (frame) => this.#send(frame),
      unansweredMs,
      onSilent: () => this.#break(`The launcher has not answered for ${unansweredMs / 1000} seconds.`),
    });
    this.#lines = new LineCutter({
      maxBytes: maxLineBytes,
      onLine: (line, end) => this.#line(line, end),
      onTooLong: () => this.#break(`The harness wrote a line of more than ${maxLineBytes} characters.`),
      isHeld: () => this.#intake?.isHeld ?? false,
    });
  }

  static async open(path: string, options: EndpointOptions): Promise<Endpoint> {
    await rm(path, { force: true });
    const server = createServer();
    const endpoint = new Endpoint(server, options);
    server.maxConnections = maxGreeting + 1;
    server.on('connection', (socket) => endpoint.#greet(socket));
    // A socket that nobody may write to lets nobody connect, which costs us nothing.
    new Gate(limits.controlArrivals, (isShut) => chmodSync(path, isShut ? 0 : 0o666)).watch(server);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
    // The sandbox's user is another one; the folder around it is open for nobody else.
    await chmod(path, 0o666);
    return endpoint;
  }

  /** Told also of a launcher that has dialled before, or is broken already. */
  set events(events: EndpointEvents) {
    this.#events = events;
    const { hello, broken } = this.#unheard;
    this.#unheard = { hello: null, broken: null };
    if (broken !== null) events.onBroken(broken);
    else if (hello) events.onHello(hello);
  }

  /** It has sent more than its pace; the rest waits in the socket. */
  get isHeldBack(): boolean {
    return this.#pace.isHolding;
  }

  /** Of the byte after the last whole line of the harness. */
  get position(): number {
    return this.#lines.position;
  }

  /** Of the byte after the last line that was written to the harness. */
  get written(): number {
    return this.#sent.end;
  }

  /** What the launcher of an earlier process of the service had received of that one's lines. */
  get launcherReceived(): number {
    return this.#launcherReceived;
  }

  /** Lets the launcher send what it has, from the first line that nobody has acknowledged. */
  welcome(): void {
    this.#isAwaited = true;
    const socket = this.#socket;
    if (!socket || this.#isOpen) return;
    const from = this.#wasOpen ? this.#lines.position : this.#launcherBase;
    this.#lines.restart(from);
    this.#isOpen = true;
    this.#wasOpen = true;
    this.commands.isReady = true;
    socket.write(jsonFrame(frameKinds.welcome, 0, { from }));
    this.#sent.forget(this.#launcherReceived);
    const chunks = [...this.#sent.chunks()];
    chunks.forEach((chunk, at) => this.#sendLines(chunk, at === chunks.length - 1));
    this.#sendNotes();
  }

  write(line: string): void {
    const bytes = Buffer.from(line);
    this.#sent.push(bytes);
    this.#sendLines(bytes);
    if (this.#sent.bytes > maxUnreadBytes) this.#break('The harness does not read its input.');
  }

  /**
   * The launcher keeps it for the next process of the service; null forgets it. It leaves together with what is sent
   * next in the same tick (a prompt with the note of it), so that the launcher is woken once: with the end of it where that is
   * more than one frame, so that a kill leaves both or none.
   */
  note(key: string, value: unknown): void {
    if (value === null) this.#noted.delete(key);
    else if (this.#noted.has(key) || this.#noted.size < maxNotes) this.#noted.add(key);
    else return;
    if (this.#notes.size === 0) process.nextTick(() => this.#sendNotes());
    const frame = jsonFrame(frameKinds.note, 0, { key, value });
    this.#notes.set(key, { frame, isForgotten: value === null });
  }

  /** What the lines before `position` told is durable. */
  ack(position: number): void {
    this.#acknowledged = position;
    this.#send(positionFrame(position));
  }

  /** Whether what it sends is read without a pace: somebody waits until what it told before is read. */
  set isHurried(isHurried: boolean) {
    const intake = this.#intake;
    if (!intake) return;
    if (isHurried) this.#pace.free(intake);
    else this.#pace.bind(intake);
  }

  /** What a line has cost beyond its reading, as the characters of lines are counted: what comes next waits for it. */
  charge(chars: number): void {
    this.#pace.charge(chars);
  }

  /** Nothing more is read until the answer is called. */
  wait(): () => void {
    return this.#pace.wait();
  }

  /** The harness is to end by itself. */
  end(): void {
    this.#send(newFrame(frameKinds.end, 0, 0));
  }

  /** Resolves when nothing is connected, and what was sent before is read; at the latest after a while. */
  async drained(): Promise<void> {
    const intake = this.#intake;
    if (!intake) return;
    // Its sender is gone, and a socket that is not read does not tell its end.
    this.#pace.finish(intake);
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      void intake.ended.then(resolve);
      timer = setTimeout(resolve, drainMs);
    });
    clearTimeout(timer);
  }

  /** Nothing is sent or read any more. The launcher dials again until its sandbox ends. */
  close(): void {
    this.#lines.stop();
    this.#intake?.stop();
    this.#server.close();
    for (const socket of this.#greeting) socket.destroy();
    this.#sendNotes();
    this.#isOpen = false;
    this.#isClosed = true;
    // What was written still leaves.
    this.#socket?.destroySoon();
    this.commands.isReady = false;
    this.commands.allOver();
  }

  #greet(socket: Socket): void {
    // Who comes first is served; a second launcher is somebody else's joke.
    if (this.#socket || this.#isBroken || this.#greeting.size >= maxGreeting) return void socket.destroy();
    this.#greeting.add(socket);
    const timer = setTimeout(() => socket.destroy(), helloMs);
    socket.on('error', () => undefined);
    const intake = new Intake(socket, {
      pace: this.#pace,
      maxBytes: maxHelloBytes,
      onFrame: (kind, stream, payload) => {
        if (this.#socket === socket) return this.#frame(kind, stream, payload);
        clearTimeout(timer);
        this.#greeting.delete(socket);
        if (kind !== frameKinds.hello || this.#socket) return void socket.destroy();
        this.#hello(socket, intake, payload);
      },
      goOn: () => {
        if (this.#intake === intake) this.#lines.goOn();
      },
      onTooLong: () => socket.destroy(),
      onFault: (error) => {
        this.#onFault(error);
        if (this.#socket === socket) this.#break('It sent what the service cannot handle.');
        else socket.destroy();
      },
      onEnd: () => {
        clearTimeout(timer);
        this.#greeting.delete(socket);
        if (this.#socket === socket) this.#lost();
      },
    });
  }

  #hello(socket: Socket, intake: Intake, payload: Buffer): void {
    const text = payload.toString('utf8');
    const values = countValues(text, maxHelloValues);
    this.#pace.frame(payload.length);
    this.#pace.line(payload.length, values);
    const hello = values > maxHelloValues ? null : readHello(text);
    if (!hello) return void socket.destroy();
    this.#socket = socket;
    this.#intake = intake;
    this.#launcherBase = hello.base;
    this.#launcherReceived = hello.received;
    // What it says is what it has, but for what is still on its way to it.
    this.#noted.clear();
    for (const key of hello.keys) this.#noted.add(key);
    for (const [key, { isForgotten }] of this.#notes) {
      if (isForgotten) this.#noted.delete(key);
      else this.#noted.add(key);
    }
    // Also when it went away between its hello and the welcome.
    if (this.#isAwaited) return this.welcome();
    // Of an earlier process of the service: what it had is not ours to send again.
    if (hello.received > 0) this.#sent = new ByteLog(hello.received);
    if (this.#events) this.#events.onHello(hello.notes);
    else this.#unheard.hello = hello.notes;
  }

  #lost(): void {
    // Whoever went away unheard dials again, and says it again.
    this.#unheard.hello = null;
    this.#socket = null;
    this.#intake = null;
    this.#isOpen = false;
    this.commands.isReady = false;
    this.commands.allOver();
  }

  #frame(kind: number, stream: number, payload: Buffer): void {
    // The launcher may send until it hears of it, and keeps what nobody acknowledged.
    if (this.#isClosed) return;
    // Nothing is expected before the welcome, and nothing as long as a hello after it.
    if (!this.#isOpen || payload.length > maxPayloadBytes) return this.#break('It sent a frame out of turn.');
    // What commands write has a pace of its own, so that nothing else waits for it.
    const isOutput = kind === frameKinds.data && this.commands.has(stream);
    this.#pace.frame(isOutput ? 0 : payload.length);
    switch (kind) {
      case frameKinds.lines:
        if (payload.length < positionBytes) return this.#break('It sent a frame that is too short.');
        this.#sent.forget(payload.readUIntBE(0, positionBytes));
        return this.#lines.push(payload.subarray(positionBytes));
      case frameKinds.ack:
        if (payload.length !== positionBytes) return this.#break('It sent a frame that is too short.');
        return this.#sent.forget(payload.readUIntBE(0, positionBytes));
      case frameKinds.log:
        this.#pace.line(payload.length, 0);
        return this.log.push(payload);
      default:
        if (!this.commands.frame(kind, stream, payload)) this.#break('It sent a frame of an unknown kind.');
    }
  }

  #line(line: string, end: number): void {
    const max = limits.lineValues;
    const values = countValues(line, max);
    if (values > max) return this.#break(`The harness wrote a line with more than ${max} names and values.`);
    this.#pace.line(line.length, values);
    this.#events?.onLine(line, end, values);
  }

  #break(why: string): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    this.#lines.stop();
    // What came together with it would be out of turn too.
    this.#intake?.stop();
    this.#isOpen = false;
    this.#socket?.destroy();
    if (this.#events) this.#events.onBroken(why);
    else this.#unheard.broken = why;
  }

  #sendLines(bytes: Buffer, takesNotes = true): void {
    for (let from = 0; from < bytes.length; from += maxLinesBytes) {
      const isLast = from + maxLinesBytes >= bytes.length;
      this.#send(
        linesFrame(this.#acknowledged, bytes.subarray(from, from + maxLinesBytes)),
        takesNotes && isLast,
      );
    }
  }

  #sendNotes(): void {
    if (this.#notes.size > 0) this.#send(Buffer.alloc(0));
  }

  #send(frame: Buffer, takesNotes = true): void {
    const socket = this.#socket;
    if (!this.#isOpen || !socket) return;
    const notes = takesNotes ? [...this.#notes.values()].map(({ frame: note }) => note) : [];
    if (notes.length > 0) this.#notes.clear();
    socket.write(notes.length === 0 ? frame : Buffer.concat([...notes, frame]));
    if (socket.writableLength > maxUnreadBytes) this.#break('The harness does not read its input.');
  }
}

interface Hello {
  base: number;
  received: number;
  /** Of all notes that the launcher has; `notes` are those that are short enough to be read. */
  keys: string[];
  notes: Notes;
}

function readHello(text: string): Hello | null {
  let hello: unknown;
  try {
    hello = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(hello) || hello['version'] !== 1) return null;
  const { base, received, notes } = hello;
  if (!isPosition(base) || !isPosition(received) || !Array.isArray(notes) || notes.length > maxNotes)
    return null;
  const known: Notes = new Map();
  const keys: string[] = [];
  for (const note of notes) {
    if (!Array.isArray(note) || typeof note[0] !== 'string') return null;
    keys.push(note[0]);
    if (isShort(note)) known.set(note[0], note[1]);
  }
  return { base, received, keys, notes: known };
}

/** Nesting that is too deep to be written is too long as well. */
function isShort(note: unknown[]): boolean {
  try {
    return JSON.stringify(note).length <= maxNoteChars;
  } catch {
    return false;
  }
}

function isPosition(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < maxPosition;
}
