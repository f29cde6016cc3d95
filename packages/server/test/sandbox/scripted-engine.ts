import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { TestContext } from 'node:test';

/** What an engine does with a request; the answer is `204` without a body where nothing is said. */
export type Says = (response: ServerResponse) => void;

export interface ScriptedEngine {
  socket: string;
  /** The requests so far: method and path, without the version and the query. */
  asked: string[];
  /** By request as in `asked`; of several each time the next one, and the last one from then on. */
  says: Record<string, Says[]>;
  /** Those who are attached to a container. */
  attached: Duplex[];
}

export const json =
  (body: unknown, status = 200): Says =>
  (response) =>
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
export const fails = (message: string, status = 500): Says => json({ message }, status);
/** No answer comes, as when the engine ends. */
export const breaks: Says = (response) => response.socket?.destroy();

export const frame = (stream: number, text: string): Buffer => {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
};

export interface State {
  Status: string;
  Running: boolean;
  Paused: boolean;
  Pid: number;
  ExitCode: number;
  StartedAt: string;
}

/** As Podman 4.3.1 tells of a container that was made, runs and has ended. */
export const created: State = {
  ...{ Status: 'created', Running: false, Paused: false, Pid: 0, ExitCode: 0 },
  StartedAt: '0001-01-01T00:00:00Z',
};
export const ended: State = {
  ...{ Status: 'exited', Running: false, Paused: false, Pid: 0, ExitCode: 7 },
  StartedAt: '2026-11-30T20:34:56.395902393Z',
};
export const runs: State = { ...ended, Status: 'running', Running: true, ExitCode: 0 };

export const container = (state: State): Says =>
  json({ State: { ...state, OOMKilled: false }, Config: { Labels: null } });

/** An engine on a socket that says what it is told to say. It is Podman where nothing else is said. */
export async function scriptedEngine(t: TestContext, says: Record<string, Says[]>): Promise<ScriptedEngine> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-engine-'));
  const engine: ScriptedEngine = {
    socket: join(folder, 'engine.sock'),
    asked: [],
    says: { 'GET /version': [json({ Components: [{ Name: 'Podman Engine' }] })], ...says },
    attached: [],
  };
  const note = (method: string | undefined, url: string | undefined): string => {
    const path = new URL(url ?? '', 'http://engine').pathname.replace(/^\/v[\d.]+/, '');
    // One container is like another.
    const request = `${method} ${path.replace(/^\/containers\/(?!create|json)[^/]+/, '/one')}`;
    engine.asked.push(request);
    return request;
  };
  const server = createServer((request, response) => {
    request.resume();
    const list = engine.says[note(request.method, request.url)] ?? [];
    const say = list.length > 1 ? list.shift() : list[0];
    if (say) say(response);
    else response.writeHead(204).end();
  });
  server.on('upgrade', (request, socket: Duplex) => {
    note(request.method, request.url);
    socket.on('error', () => {});
    socket.write('HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n');
    engine.attached.push(socket);
  });
  server.listen(engine.socket);
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    for (const socket of engine.attached) socket.destroy();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return engine;
}
