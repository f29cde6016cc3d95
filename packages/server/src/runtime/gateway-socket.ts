import { chmodSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Gate } from '../domain/gate.ts';
import { limits } from '../domain/limits.ts';
import { mayGoOn, readInTurn, refuseExpectation } from '../domain/one-request.ts';
import { ReadingAccount } from '../domain/paced.ts';
import type { ModelCaller, ModelGateway } from '../domain/ports/model-gateway.ts';

export interface GatewaySocket {
  close(): void;
}

/** Connections of all sandboxes. */
let open = 0;

const charge = limits.pipelinedCharge;

/** Longer than a harness keeps an idle connection, so that the server never closes one under a request. */
const KEEP_ALIVE_MS = 120_000;

/** That one sandbox may have: no more than half of what all of them may have. */
export const connectionsOfOne = (maxConnections: number): number =>
  Math.min(limits.gatewayConnections, Math.ceil(maxConnections / 2));

/** The model gateway on a Unix socket of one sandbox: who calls is known from the socket (docs/design/sandbox-launch.md). */
export async function openGatewaySocket(
  path: string,
  gateway: ModelGateway,
  caller: ModelCaller,
  /** Of all sandboxes together. */
  maxConnections: number,
): Promise<GatewaySocket> {
  await rm(path, { force: true });
  const server = createServer(
    { keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: 0, requireHostHeader: false },
    (request, response) => {
      if (mayGoOn(request, response)) gateway.handle(caller, request, response);
    },
  );
  server.on('checkExpectation', refuseExpectation);
  // One beyond it is closed at once: descriptors are short, and everybody's.
  server.maxConnections = connectionsOfOne(maxConnections);
  // Nobody can connect to a socket that nobody may write to: whoever asks too often waits outside, at no cost to us.
  const pace = { ...limits.gatewayArrivals, burst: server.maxConnections };
  const gate = new Gate(pace, (isShut) => chmodSync(path, isShut ? 0 : 0o666));
  gate.watch(server);
  const account = new ReadingAccount();
  server.on('connection', (connection) => {
    readInTurn(connection, { account, onCut: () => gate.charge(charge.connections, charge.maxMs) });
    open += 1;
    connection.once('close', () => (open -= 1));
    if (open > maxConnections) connection.destroy();
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    // A socket of this kind refuses whoever finds its queue full.
    server.listen({ path, backlog: server.maxConnections }, resolve);
  });
  // The sandbox's user is another one; the folder around it is open for nobody else.
  await chmod(path, 0o666);
  return {
    close() {
      gate.close();
      server.close();
      server.closeAllConnections();
    },
  };
}
