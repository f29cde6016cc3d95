import type { Duplex } from 'node:stream';
import { endSocket } from './end-socket.ts';

/** Answers a request to upgrade on its bare socket, and ends it. */
export async function answerSocket(socket: Duplex, answer: Response): Promise<void> {
  const body = Buffer.from(await answer.arrayBuffer());
  const lines = [...answer.headers].map(([name, value]) => `${name}: ${value}\r\n`).join('');
  endSocket(
    socket,
    Buffer.concat([
      Buffer.from(
        `HTTP/1.1 ${answer.status} Refused\r\n${lines}Content-Length: ${body.length}\r\nConnection: close\r\n\r\n`,
      ),
      body,
    ]),
  );
}
