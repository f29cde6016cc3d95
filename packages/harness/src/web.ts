import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { StartError, startError } from './exec-start.ts';
import type { Exit, Started } from './exec-start.ts';
import { wholeLines } from './whole-lines.ts';

// As an object, since an `import` of it evaluates every export.
const net = process.getBuiltinModule('node:net');

/** For so long after it was started the server may not listen yet; and after the agent was, when that starts it. */
const startMs = 30_000;
const lookMs = 50;
/** Where programs listen that are told `localhost`. */
const loopbackAddresses = ['127.0.0.1', '::1'];

export interface ConnectRequest {
  port: number;
  /** argv of the server; null = the agent starts it by itself. */
  command: string[] | null;
}

interface Running {
  child: ChildProcess;
  startedMs: number;
  /** How it ended; null while it runs. */
  ended: string | null;
}

/** The agent's own web server: started when the first connection wants it, and again when it has ended since. */
export class WebServer {
  readonly #env: () => Promise<Record<string, string>>;
  readonly #workspace: string;
  readonly #log: (line: string) => void;
  readonly #begunMs: number;
  #running: Promise<Running> | null = null;

  constructor(options: {
    env: () => Promise<Record<string, string>>;
    workspace: string;
    log: (line: string) => void;
    begunMs: number;
  }) {
    this.#env = options.env;
    this.#workspace = options.workspace;
    this.#log = options.log;
    this.#begunMs = options.begunMs;
  }

  /** Waits for a server that is only just starting. Rejects with StartError. */
  async connect({ port, command }: ConnectRequest): Promise<Started> {
    const first = await dialAny(port);
    if (first) return startedBy(first);
    const askedMs = performance.now();
    let server = command ? await this.#run(command, port) : null;
    for (;;) {
      const socket = await dialAny(port);
      if (socket) return startedBy(socket);
      // It listens no more before it has ended: one that was there already was perhaps only still on its way out.
      if (command && server?.ended && server.startedMs < askedMs) server = await this.#run(command, port);
      else if (server?.ended) throw new StartError('failed', `Its command ended with ${server.ended}.`);
      const untilMs = (server?.startedMs ?? this.#begunMs) + startMs;
      if (performance.now() > untilMs) throw new StartError('failed', `Nothing listens on port ${port}.`);
      await new Promise((resolve) => setTimeout(resolve, lookMs));
    }
  }

  async #run(command: string[], port: number): Promise<Running> {
    const before = this.#running;
    const running = await before?.catch(() => null);
    if (running && !running.ended) return running;
    // Of those that come at once, the first starts it.
    if (this.#running === before) this.#running = this.#start(command, port);
    return this.#running!;
  }

  async #start([program = '', ...args]: string[], port: number): Promise<Running> {
    const env = { ...(await this.#env()), PORT: String(port) };
    const child = spawn(program, args, { cwd: this.#workspace, env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const output of [child.stdout, child.stderr]) {
      output.on(
        'data',
        wholeLines((lines) => {
          for (const line of lines.toString('utf8').split('\n')) if (line !== '') this.#log(line);
        }),
      );
    }
    await new Promise<void>((resolve, reject) => {
      child.once('spawn', resolve);
      child.once('error', (error) => reject(startError(program, error)));
    });
    const running: Running = { child, startedMs: performance.now(), ended: null };
    child.once('exit', (code, signal) => {
      running.ended = signal ?? `exit code ${code}`;
      this.#log(`berth: The web server ended with ${running.ended}.`);
    });
    return running;
  }
}

/** Null: nothing listens there. */
async function dialAny(port: number): Promise<Socket | null> {
  for (const host of loopbackAddresses) {
    const socket = await dial(host, port);
    if (socket) return socket;
  }
  return null;
}

function dial(host: string, port: number): Promise<Socket | null> {
  return new Promise((resolve) => {
    const socket = net.connect({ host, port, noDelay: true });
    socket.once('connect', () => resolve(socket));
    socket.once('error', () => resolve(null));
  });
}

/** A connection as the service has commands: input and output. Its exit code says whether it ended in order. */
function startedBy(socket: Socket): Started {
  let isBroken = false;
  const exited = new Promise<Exit>((resolve) => {
    socket.once('error', () => (isBroken = true));
    socket.once('close', () => resolve({ code: isBroken ? 1 : 0, signal: null }));
  });
  return {
    input: socket,
    outputs: [socket],
    exited,
    endInput: () => socket.end(),
    signal: () => undefined,
    resize: () => undefined,
    endAll: () => socket.destroy(),
  };
}
