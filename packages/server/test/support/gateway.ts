import { createHash } from 'node:crypto';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders } from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noEgress } from '../../src/domain/egress-policy.ts';
import type { Log, LogFields } from '../../src/domain/log.ts';
import type {
  ModelCaller,
  ModelGateway,
  ModelGatewayHooks,
  ModelUsage,
} from '../../src/domain/ports/model-gateway.ts';
import { createModelGateway } from '../../src/gateway/gateway.ts';
import type { ModelGatewayOptions } from '../../src/gateway/gateway.ts';
import { readProviders } from '../../src/gateway/providers.ts';

export const sandboxToken = 'sandbox-token-for-tests';
export const operatorKey = 'operator-key-for-tests';

/** All three wires lead to one scripted provider, with the operator's key. */
export const everyWire = ({
  url,
  openaiUrl,
}: {
  url: string;
  openaiUrl: string;
}): Record<string, string> => ({
  ANTHROPIC_API_KEY: operatorKey,
  ANTHROPIC_BASE_URL: url,
  OPENAI_API_KEY: operatorKey,
  OPENAI_BASE_URL: openaiUrl,
  GEMINI_API_KEY: operatorKey,
  GEMINI_BASE_URL: url,
});

export interface GatewayAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  text: string;
  /** False when the connection broke before the end. */
  isComplete: boolean;
}

export interface SendOptions {
  method?: string;
  headers?: Record<string, string>;
  /** An object is sent as JSON, a text or bytes as they are. */
  body?: unknown;
  signal?: AbortSignal;
  onData?: (chunk: Buffer) => void;
}

export interface TestGateway {
  gateway: ModelGateway;
  socketPath: string;
  caller: ModelCaller;
  usages: ModelUsage[];
  /** The session of each call that was begun. */
  calls: (string | null)[];
  /** One entry per call of `reserve`; `released` turns true when it is released, or named by a usage. */
  reservations: { estimateMicros: bigint; released: boolean }[];
  /** Answers whose head was written by itself. */
  headsAlone: () => number;
  /** Everything that was logged, as text. */
  logged: () => string;
  send(path: string, options?: SendOptions): Promise<GatewayAnswer>;
  close(): Promise<void>;
}

export interface TestGatewayOptions {
  env: Record<string, string>;
  file?: unknown;
  model: string;
  secretKeys?: Record<string, string>;
  reserve?: ModelGatewayHooks['reserve'];
  gateway?: Partial<ModelGatewayOptions>;
}

/** The gateway behind a Unix socket, as a sandbox meets it. */
export async function startGateway(options: TestGatewayOptions): Promise<TestGateway> {
  const usages: ModelUsage[] = [];
  const calls: TestGateway['calls'] = [];
  const reservations: TestGateway['reservations'] = [];
  const lines: string[] = [];
  const hooks: ModelGatewayHooks = {
    onCall: (_caller, sessionId) => void calls.push(sessionId),
    onUsage: (_caller, usage) => {
      usages.push(usage);
      const reserved = reservations[Number(usage.reservationId)];
      if (reserved) reserved.released = true;
    },
    reserve: async (caller, estimateMicros) => {
      const entry = { estimateMicros, released: false };
      reservations.push(entry);
      const answer = options.reserve ? await options.reserve(caller, estimateMicros) : null;
      if (answer && !answer.ok) return answer;
      const id = String(reservations.indexOf(entry));
      return { ok: true, id, release: () => void (entry.released = true) };
    },
  };
  const gateway = await createModelGateway({
    providers: readProviders(options.env, options.file === undefined ? null : JSON.stringify(options.file)),
    hooks,
    readPolicy: async () => noEgress,
    log: listLog(lines),
    detectOllama: false,
    ...options.gateway,
  });
  const caller: ModelCaller = {
    orgId: 'org',
    agentId: 'agent',
    sandboxId: 'sandbox',
    model: options.model,
    tokenHash: createHash('sha256').update(sandboxToken).digest('base64url'),
    secretKeys: options.secretKeys ?? {},
  };
  const directory = mkdtempSync(join(tmpdir(), 'gateway-'));
  const socketPath = join(directory, 'gateway.sock');
  let headsAlone = 0;
  const server = createServer((request, response) => {
    const flush = response.flushHeaders.bind(response);
    response.flushHeaders = () => {
      headsAlone += 1;
      flush();
    };
    gateway.handle(caller, request, response);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    gateway,
    socketPath,
    caller,
    usages,
    calls,
    reservations,
    headsAlone: () => headsAlone,
    logged: () => lines.join('\n'),
    send: (path, sendOptions = {}) => send(socketPath, path, sendOptions),
    close: async () => {
      gateway.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function listLog(lines: string[]): Log {
  const line = (message: string, fields?: LogFields): void =>
    void lines.push(`${message} ${JSON.stringify(fields ?? {})}`);
  const log: Log = { debug: line, info: line, warn: line, error: line, child: () => log };
  return log;
}

/** Sends with the sandbox's token as a bearer, unless the headers say otherwise; never rejects for a broken answer. */
function send(socketPath: string, path: string, options: SendOptions): Promise<GatewayAnswer> {
  const { body } = options;
  const isRaw = typeof body === 'string' || Buffer.isBuffer(body);
  const bytes = body === undefined ? null : isRaw ? Buffer.from(body) : Buffer.from(JSON.stringify(body));
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      socketPath,
      path,
      method: options.method ?? (bytes === null ? 'GET' : 'POST'),
      headers: {
        authorization: `Bearer ${sandboxToken}`,
        ...(bytes === null ? {} : { 'content-type': 'application/json' }),
        ...(bytes === null || options.headers?.['transfer-encoding']
          ? {}
          : { 'content-length': bytes.length }),
        ...options.headers,
      },
      agent: false,
      ...(options.signal ? { signal: options.signal } : {}),
    });
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      const done = (): void => {
        const all = Buffer.concat(chunks);
        const status = response.statusCode ?? 0;
        resolve({
          status,
          headers: response.headers,
          body: all,
          text: all.toString('utf8'),
          isComplete: response.complete,
        });
      };
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        options.onData?.(chunk);
      });
      response.on('error', done);
      response.on('close', done);
    });
    request.on('error', reject);
    request.end(bytes ?? undefined);
  });
}
