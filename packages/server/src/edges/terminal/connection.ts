import type { RawData, WebSocket } from 'ws';
import type { TerminalEnd, TerminalView, TerminalViewer } from '../../services/api.ts';
import { readControl } from './control.ts';

/** A client with more than this unread holds the terminal up until it has read. */
const UNREAD_BYTES = 256 * 1024;
const PING_MS = 15_000;
/** Messages and bytes a second that a client may send, in bursts of as many. */
const MESSAGES_A_SECOND = 500;
const BYTES_A_SECOND = 1024 * 1024;

/** Codes of a close (RFC 6455, section 7.4); 4000 and above are ours. */
const closeCodes = { exit: 1000, closing: 1001, taken: 4001, revoked: 4002 } as const;

/** One WebSocket on one terminal: binary frames are bytes, text frames are JSON. */
export class Connection implements TerminalViewer {
  readonly #socket: WebSocket;
  readonly #terminal: TerminalView;
  readonly #ping: NodeJS.Timeout;
  #isAlive = true;
  #isHeld = false;
  #messages = MESSAGES_A_SECOND;
  #bytes = BYTES_A_SECOND;
  #filledMs = performance.now();

  constructor(socket: WebSocket, terminal: TerminalView, after: number) {
    this.#socket = socket;
    this.#terminal = terminal;
    socket.on('message', (data, isBinary) => this.#message(toBuffer(data), isBinary));
    socket.on('pong', () => (this.#isAlive = true));
    // What breaks the protocol closes the connection by itself.
    socket.on('error', () => {});
    socket.once('close', () => {
      clearInterval(this.#ping);
      terminal.detach(this);
    });
    this.#ping = setInterval(() => this.#look(), PING_MS);
    this.#ping.unref();
    const { offset, lostBytes } = terminal.attach(this, after);
    this.#tell({ type: 'opened', terminalId: terminal.id, offset, lostBytes });
  }

  write(bytes: Buffer): void {
    this.#socket.send(bytes, () => this.#sent());
    if (this.#isHeld || this.#socket.bufferedAmount <= UNREAD_BYTES) return;
    this.#isHeld = true;
    this.#terminal.hold(this, true);
  }

  ended(end: TerminalEnd): void {
    this.end(end);
  }

  end(end: TerminalEnd): void {
    if (end.kind === 'exit') this.#tell({ type: 'exit', exitCode: end.exitCode, signal: end.signal });
    this.#socket.close(closeCodes[end.kind], end.kind);
  }

  #sent(): void {
    if (!this.#isHeld || this.#socket.bufferedAmount > UNREAD_BYTES / 2) return;
    this.#isHeld = false;
    this.#terminal.hold(this, false);
  }

  #message(bytes: Buffer, isBinary: boolean): void {
    if (!this.#mayTake(bytes.length)) return this.#socket.close(1008, 'too fast');
    if (isBinary) {
      if (this.#terminal.input(bytes)) return;
      // Frames that were read already still come, so that this may happen more than once.
      if (this.#socket.isPaused) return;
      this.#socket.pause();
      this.#terminal.onDrain(() => this.#socket.resume());
      return;
    }
    const control = readControl(bytes.toString('utf8'));
    switch (control.type) {
      case 'resize':
        return this.#terminal.resize(control.columns, control.rows);
      case 'signal':
        return this.#terminal.signal(control.signal);
      case 'error':
        return this.#tell(control);
    }
  }

  #mayTake(bytes: number): boolean {
    const nowMs = performance.now();
    const seconds = (nowMs - this.#filledMs) / 1000;
    this.#filledMs = nowMs;
    this.#messages = Math.min(MESSAGES_A_SECOND, this.#messages + seconds * MESSAGES_A_SECOND) - 1;
    this.#bytes = Math.min(BYTES_A_SECOND, this.#bytes + seconds * BYTES_A_SECOND) - bytes;
    return this.#messages >= 0 && this.#bytes >= 0;
  }

  /** A connection whose client is gone without a word is noticed by its silence. */
  #look(): void {
    if (!this.#isAlive) return this.#socket.terminate();
    this.#isAlive = false;
    this.#socket.ping();
  }

  #tell(message: object): void {
    this.#socket.send(JSON.stringify(message), () => {});
  }
}

function toBuffer(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data;
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data);
}
