import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * A bare `node:http` server that writes the same bytes to every request: a floor for what a service reads and answers. Its
 * argument is what it writes.
 */

export interface SameBytes {
  /** Names and values in turns, as they came. */
  headers: string[];
  body: string;
}

const { headers, body } = JSON.parse(process.argv[2]!) as SameBytes;
const server = createServer({ keepAliveTimeout: 120_000 }, (_, response) => {
  response.sendDate = false;
  response.writeHead(200, headers);
  response.end(body);
});
server.listen(0, '127.0.0.1', () => process.send!({ port: (server.address() as AddressInfo).port }));
// The bench may be killed: nothing of it stays.
process.once('disconnect', () => process.exit(0));
