import { request, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';

/** Spoken by Docker 20.10 and newer, and by Podman 4 and newer. */
const API = '/v1.41';
const CALL_TIMEOUT_MS = 120_000;
const ANSWER_MAX_BYTES = 16 * 1024 * 1024;

/** What the engine answered when it did not do what was asked; `message` is its own text. */
export class EngineError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The few calls of the Docker Engine API that a driver needs, over a Unix socket of Docker or Podman. */
export class Engine {
  private readonly socketPath: string;

  constructor(socketPath: string) {
    this.socketPath = socketPath;
  }

  /**
   * The JSON that was answered; null for an empty answer. A path without a version gets that of the Docker API. Throws
   * EngineError on any status from 400 on.
   */
  async call(method: string, path: string, body?: unknown, timeoutMs = CALL_TIMEOUT_MS): Promise<unknown> {
    const response = await this.open(method, path, body, timeoutMs);
    return parse(await readText(response));
  }

  /** The answer as it comes, without a limit in time. */
  stream(method: string, path: string): Promise<IncomingMessage> {
    return this.open(method, path, undefined, 0);
  }

  /**
   * A two-way stream. No body is sent: Podman would hand it to the program as its input. The options stand in `path`.
   */
  hijack(path: string): Promise<Duplex> {
    return new Promise((resolve, reject) => {
      const outgoing = request({
        socketPath: this.socketPath,
        method: 'POST',
        path: `${API}${path}`,
        headers: { Host: 'engine', Connection: 'Upgrade', Upgrade: 'tcp' },
        agent: false,
      });
      outgoing.on('upgrade', (_response, socket, head) => {
        if (head.length > 0) socket.unshift(head);
        resolve(socket);
      });
      outgoing.on('response', (response) => {
        readText(response).then(
          (text) => reject(new EngineError(response.statusCode ?? 0, messageOf(text))),
          reject,
        );
      });
      outgoing.on('error', reject);
      outgoing.end();
    });
  }

  private open(method: string, path: string, body: unknown, timeoutMs: number): Promise<IncomingMessage> {
    const text = body === undefined ? null : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const outgoing = request({
        socketPath: this.socketPath,
        method,
        path: /^\/v\d/.test(path) ? path : `${API}${path}`,
        headers: {
          Host: 'engine',
          ...(text === null
            ? {}
            : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
        },
        agent: false,
        ...(timeoutMs > 0 ? { signal: AbortSignal.timeout(timeoutMs) } : {}),
      });
      outgoing.on('response', (response) => {
        const status = response.statusCode ?? 0;
        if (status < 400) {
          resolve(response);
          return;
        }
        readText(response).then((said) => reject(new EngineError(status, messageOf(said))), reject);
      });
      outgoing.on('error', reject);
      outgoing.end(text ?? undefined);
    });
  }
}

async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > ANSWER_MAX_BYTES) throw new Error('The engine answered more than can be read.');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function parse(text: string): unknown {
  return text.trim() === '' ? null : (JSON.parse(text) as unknown);
}

function messageOf(text: string): string {
  try {
    const { message, cause } = JSON.parse(text) as { message?: string; cause?: string };
    return message ?? cause ?? text.slice(0, 500);
  } catch {
    return text.slice(0, 500);
  }
}
