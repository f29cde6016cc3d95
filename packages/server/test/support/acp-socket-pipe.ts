import { createInterface } from 'node:readline';
import { HostSocket } from './acp-client.ts';

// The least that makes a WebSocket of standard input and output, to hold our own bridge against: no other program's
// client speaks WebSocket by itself yet. Arguments: the address; the key is in BERTH_API_KEY.
const socket = new HostSocket(process.argv[2]!, [], {
  headers: { authorization: `Bearer ${process.env['BERTH_API_KEY']}` },
});
socket.on('message', (data) => process.stdout.write(`${String(data)}\n`));
socket.on('close', () => process.exit(0));
socket.on('open', () => {
  createInterface({ input: process.stdin })
    .on('line', (line) => socket.send(line))
    .on('close', () => socket.close());
});
