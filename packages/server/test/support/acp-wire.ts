import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { methods, type Stream } from '@agentclientprotocol/sdk';
import { acpStream, HostSocket } from './acp-client.ts';
import { closed } from './closed.ts';

/** A message of JSON-RPC as it came. */
// oxlint-disable-next-line no-explicit-any -- tests read into messages of all kinds
export type Wired = any;

/** A client's end of a connection, one message at a time, with nothing of an SDK between. */
export interface Wire {
  send(message: unknown): void;
  /** Text that need be no message; null where the transport carries messages only. */
  sendText: ((text: string) => void) | null;
  /** What came, in order. */
  received: Wired[];
  /** What came and is no JSON, or no line of its own. */
  junk: string[];
  /** Resolves when the other end is gone. */
  closed: Promise<unknown>;
  /** Ends it as a client does that leaves. */
  leave(): void;
}

const bin = fileURLToPath(new URL('../../../cli/bin/berth.mjs', import.meta.url));

export interface Target {
  port: number;
  agentId: string;
  key: string;
  home: string;
}

export const bridgeCommand = ({ agentId }: Pick<Target, 'agentId'>) => [
  process.execPath,
  bin,
  'acp',
  agentId,
];

export const bridgeEnv = ({ port, key, home }: Target) => ({
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  HOME: home,
  BERTH_URL: `http://127.0.0.1:${port}`,
  BERTH_API_KEY: key,
});

/** `berth acp` as an editor starts it. */
export async function bridgeWire(target: Target): Promise<Wire> {
  const [program, ...args] = bridgeCommand(target);
  const child = spawn(program!, args, {
    cwd: target.home,
    env: bridgeEnv(target),
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const received: Wired[] = [];
  const junk: string[] = [];
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop()!;
    for (const line of lines) take(line, received, junk);
  });
  child.stdin.on('error', () => undefined);
  const timer = setTimeout(() => child.kill('SIGKILL'), 240_000);
  const ended = once(child, 'close').then(([code]) => {
    clearTimeout(timer);
    return code as number | null;
  });
  return {
    send: (message) => void child.stdin.write(`${JSON.stringify(message)}\n`),
    sendText: (text) => void child.stdin.write(`${text}\n`),
    received,
    junk,
    closed: ended,
    leave: () => void child.stdin.end(),
  };
}

export async function socketWire({ port, agentId, key }: Target): Promise<Wire> {
  const socket = new HostSocket(`ws://${agentId}.localhost:${port}/acp`, [], {
    headers: { authorization: `Bearer ${key}` },
  });
  const received: Wired[] = [];
  const junk: string[] = [];
  socket.on('message', (data) => take(String(data), received, junk));
  const ended = closed(socket).then(([code]) => code as number);
  await once(socket, 'open');
  return {
    send: (message) => socket.send(JSON.stringify(message)),
    sendText: (text) => socket.send(text),
    received,
    junk,
    closed: ended,
    leave: () => socket.close(),
  };
}

/** By the HTTP client of the SDK, which opens the streams that a session needs. */
export async function httpWire({ port, agentId, key }: Target): Promise<Wire> {
  return streamWire(acpStream('http', port, agentId, key));
}

function streamWire(stream: Stream): Wire {
  const received: Wired[] = [];
  const writer = stream.writable.getWriter();
  const reader = stream.readable.getReader();
  const read = async (): Promise<void> => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      received.push(value);
    }
  };
  return {
    send: (message) => void writer.write(message as never).catch(() => undefined),
    sendText: null,
    received,
    junk: [],
    closed: read().catch(() => undefined),
    leave: () => void writer.close().catch(() => undefined),
  };
}

function take(text: string, received: Wired[], junk: string[]): void {
  try {
    received.push(JSON.parse(text));
  } catch {
    junk.push(text);
  }
}

export const { session } = methods.agent;
