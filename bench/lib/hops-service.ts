import { spawn } from 'node:child_process';
import { Agent, createServer, request as httpRequest } from 'node:http';
import type { RequestListener, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { startEmbedded } from '../../packages/server/src/store/embedded/server.ts';
import { silentLog } from '../../packages/server/test/support/log.ts';

/**
 * Stands in for the service and does nothing but hand on: client, harness, gateway, model and back. For the agent "commits"
 * a row is inserted and committed before the harness is told, and another before the client is told anything. It speaks the
 * two routes of the bench's client. Arguments: a folder with a prepared `postgres` in it, the port of the model.
 */

/** A line to the harness. */
export interface HopsAsked {
  id: number;
  content: string;
}

/** A line of the harness; without a text the answer is whole. */
export interface HopsTold {
  id: number;
  text: string | null;
}

const [dir = '', modelPort = ''] = process.argv.slice(2);
const gatewaySocket = join(dir, 'gateway.sock');

const database = await startEmbedded({
  home: join(dir, 'postgres'),
  socketDir: join(dir, 'run'),
  log: silentLog,
});
const sql = postgres({ ...database.connection, max: 4, onnotice: () => {} });
await sql`create table hop (id bigint generated always as identity primary key, body text not null)`;
const commit = async (body: string): Promise<void> => {
  await sql`insert into hop (body) values (${body})`;
};

const agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });
const gateway = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const { method = '', url = '', headers } = request;
  const target = { host: '127.0.0.1', port: Number(modelPort), method, path: url, agent, headers };
  const asked = httpRequest(target, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  request.pipe(asked);
});
gateway.listen(gatewaySocket);

const harnessFile = fileURLToPath(new URL('./hops-harness.ts', import.meta.url));
const harness = spawn(process.execPath, [harnessFile, gatewaySocket], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map<number, (text: string | null) => void>();
let rest = '';
harness.stdout.setEncoding('utf8').on('data', (chunk: string) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop() ?? '';
  for (const line of lines) {
    const { id, text } = JSON.parse(line) as HopsTold;
    waiting.get(id)?.(text);
  }
});

let lastId = 0;
/** `hear` gets the pieces of the answer, and null at its end. */
function turn(content: string, hear: (text: string | null) => void): void {
  const id = (lastId += 1);
  waiting.set(id, (text) => {
    if (text === null) waiting.delete(id);
    hear(text);
  });
  harness.stdin.write(`${JSON.stringify({ id, content } satisfies HopsAsked)}\n`);
}

interface Sent {
  agentId: string;
  content: string;
  stream?: boolean;
}

const answer: RequestListener = (request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
  request.on('end', () => {
    const sent = JSON.parse(body) as Sent;
    const isKept = sent.agentId === 'commits';
    const begin = () => (sent.stream ? stream(sent, isKept, response) : whole(sent, isKept, response));
    if (isKept) void commit(body).then(begin);
    else begin();
  });
};

function stream({ content }: Sent, isKept: boolean, response: ServerResponse): void {
  let first: Promise<void> | null = null;
  const pass = (text: string | null) => {
    if (text === null) response.end('event: run.completed\ndata: {}\n\n');
    else response.write(`event: message.delta\ndata: ${JSON.stringify({ data: { text } })}\n\n`);
  };
  turn(content, (text) => {
    if (first === null) response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (!isKept) {
      first ??= Promise.resolve();
      return pass(text);
    }
    first ??= commit(text ?? '');
    void first.then(() => pass(text));
  });
}

function whole({ content }: Sent, isKept: boolean, response: ServerResponse): void {
  let answered = '';
  const tell = () => {
    const told = { conversationId: '', status: 'completed', message: { content: answered } };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(told));
  };
  turn(content, (text) => {
    if (text !== null) answered += text;
    else if (isKept) void commit(answered).then(tell);
    else tell();
  });
}

const server = createServer({ keepAliveTimeout: 120_000 }, answer);
server.listen(0, '127.0.0.1', () => {
  process.send!({ port: (server.address() as AddressInfo).port });
});
process.once('message', () => {
  harness.kill('SIGKILL');
  void sql
    .end()
    .then(() => database.stop())
    .then(() => process.send!('ended'));
});
// The bench may be killed: PostgreSQL ends with this process.
process.once('disconnect', () => process.exit(0));
