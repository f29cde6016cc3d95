import { createHmac } from 'node:crypto';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

import { slackBody } from './hook-load.ts';
import type { HookLoad, HookReply } from './hook-load.ts';

/** Sends signed webhooks in a process of its own, and is the Slack that is answered. */

const bombParts = '--b\r\nContent-Type: text/plain\r\n\r\nx\r\n'.repeat(20_000);
const bombText = 'On 1/1/2025 a@b wrote:\n'.repeat(13_000);
const bombs = [
  `From: a@example.com\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n${bombParts}--b--\r\n`,
  `From: a@example.com\r\n\r\n${bombText}`,
];

function requestOf(load: HookLoad, host: string, path: string, index: number): Buffer {
  const second = String(Math.floor(Date.now() / 1_000));
  const body = Buffer.from(load.kind === 'slack' ? slackBody(load.run, index) : bombs[index % bombs.length]!);
  const mac = (text: string, key: string | Buffer) =>
    createHmac('sha256', key).update(text).update(body).digest();
  const id = `bomb-${load.run}-${index}`;
  const headers =
    load.kind === 'slack'
      ? `Content-Type: application/json\r\nX-Slack-Request-Timestamp: ${second}\r\nX-Slack-Signature: v0=${mac(`v0:${second}:`, load.secret).toString('hex')}\r\n`
      : `Content-Type: message/rfc822\r\nX-Envelope-From: a@example.com\r\nX-Envelope-To: agent@berth.example\r\nwebhook-id: ${id}\r\nwebhook-timestamp: ${second}\r\nwebhook-signature: v1,${mac(`${id}.${second}.`, Buffer.from(load.secret.slice('whsec_'.length), 'base64')).toString('base64')}\r\n`;
  const head = `POST ${path} HTTP/1.1\r\nHost: ${host}\r\n${headers}Content-Length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

/** A kept connection with one request at a time; answers are small enough to come in one piece, or end soon. */
class Line {
  readonly #port: number;
  #socket: Socket | null = null;
  #text = '';
  #told: ((answer: { status: number; mayRetry: boolean }) => void) | null = null;

  constructor(port: number) {
    this.#port = port;
  }

  open(): Promise<void> {
    const socket = connect(this.#port, '127.0.0.1').setNoDelay().setEncoding('latin1');
    this.#socket = socket;
    socket.on('data', (chunk: string) => this.#read(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#socket = null;
      this.#tell({ status: 0, mayRetry: false });
    });
    return new Promise((resolve) => {
      socket.once('connect', resolve);
      socket.once('close', () => resolve());
    });
  }

  async send(request: Buffer): Promise<{ status: number; mayRetry: boolean }> {
    if (!this.#socket) await this.open();
    return new Promise((resolve) => {
      this.#told = resolve;
      this.#text = '';
      if (this.#socket) this.#socket.write(request);
      else this.#tell({ status: 0, mayRetry: false });
    });
  }

  #tell(answer: { status: number; mayRetry: boolean }): void {
    const told = this.#told;
    this.#told = null;
    told?.(answer);
  }

  #read(chunk: string): void {
    this.#text += chunk;
    const end = this.#text.indexOf('\r\n\r\n');
    if (end < 0) return;
    const head = this.#text.slice(0, end);
    const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
    if (this.#text.length < end + 4 + length) return;
    this.#tell({ status: Number(head.slice(9, 12)), mayRetry: /^retry-after:/im.test(head) });
  }

  close(): void {
    this.#socket?.destroy();
  }
}

async function run(load: HookLoad): Promise<HookReply> {
  const { host, pathname, port } = new URL(load.url);
  const reply: HookReply = { takenMs: [], refusedMs: [], others: {} };
  const lines = Array.from({ length: load.connections }, () => new Line(Number(port)));
  await Promise.all(lines.map((line) => line.open()));
  // A burst is ready before it begins, so that what is measured is the service.
  const ready =
    load.perSecond === null
      ? Array.from({ length: load.count }, (_, index) => requestOf(load, host, pathname, index))
      : null;
  const startMs = performance.now();
  const dueMs = (index: number) =>
    load.perSecond === null ? startMs : startMs + (index * 1_000) / load.perSecond;
  let next = 0;
  await Promise.all(
    lines.map(async (line) => {
      while (next < load.count) {
        const index = next;
        next += 1;
        const waitMs = dueMs(index) - performance.now();
        if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
        const { status, mayRetry } = await line.send(
          ready?.[index] ?? requestOf(load, host, pathname, index),
        );
        const tookMs = performance.now() - dueMs(index);
        if (status === 200) reply.takenMs.push(tookMs);
        else if ((status === 503 || status === 429) && mayRetry) reply.refusedMs.push(tookMs);
        else reply.others[status] = (reply.others[status] ?? 0) + 1;
      }
    }),
  );
  for (const line of lines) line.close();
  return reply;
}

const slack = createServer((request, response) => {
  request.resume();
  request.on('end', () =>
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"ok":true,"ts":"1.1"}'),
  );
});
slack.listen(0, '127.0.0.1', () => process.send!({ port: (slack.address() as AddressInfo).port }));

process.on('message', (load: HookLoad) => {
  void run(load).then((reply) => process.send!(reply));
});
