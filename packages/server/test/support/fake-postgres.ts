import { EventEmitter } from 'node:events';
import type postgres from 'postgres';

/** One connection as the server has it. The driver writes to it as to a socket; a test says when what arrives. */
export class FakeBackend extends EventEmitter {
  readyState = 'open';
  /** What was written waits to be sent, as far as the driver is told. */
  isFull = false;
  /** Whether the first message was a startup message, as it must be. */
  startedWell: boolean | null = null;
  /** What was asked, in order, each with the transaction status it was asked in: `I` or `T`. */
  readonly asked: { text: string; status: string }[] = [];
  private status = 'I';
  private readonly server: FakePostgres;
  private parsed = '';
  private readonly unanswered: { text: string; isSimple: boolean }[] = [];

  constructor(server: FakePostgres) {
    super();
    this.server = server;
  }

  write(bytes: Buffer): boolean {
    if (this.readyState === 'closed') return false;
    let rest = bytes;
    if (this.startedWell === null) {
      this.startedWell = rest.readUInt32BE(0) <= rest.length && rest.readUInt32BE(4) === 196_608;
      rest = rest.subarray(rest.readUInt32BE(0));
      setImmediate(() => this.server.onStart(this));
    }
    for (let at = 0; at < rest.length; at += 1 + rest.readUInt32BE(at + 1))
      this.take(rest.subarray(at, at + 1 + rest.readUInt32BE(at + 1)));
    return !this.isFull;
  }

  /** Authentication done, ready for statements. */
  welcome(): void {
    this.send(message('R', int32(0)), message('Z', Buffer.from('I')));
  }

  /** Answers the oldest statement that has no answer. */
  answer(): void {
    const next = this.unanswered.shift();
    if (!next) return;
    if (next.text.startsWith('begin')) this.status = 'T';
    if (/^(commit|rollback)/.test(next.text)) this.status = 'I';
    const planned = [message('1'), message('t', int16(0)), message('n'), message('2')];
    const done = [message('C', Buffer.from('DONE\0')), message('Z', Buffer.from(this.status))];
    this.send(...(next.isSimple ? done : [...planned, ...done]));
  }

  /** The error of a server that ends a connection, as pg_terminate_backend makes it. */
  sendFatal(): void {
    this.send(
      message(
        'E',
        Buffer.from('SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0'),
      ),
    );
  }

  /** The peer has closed: in order, or with an error of the socket before. */
  lose(error?: Error): void {
    if (this.readyState === 'closed') return;
    this.readyState = 'closed';
    if (error) this.emit('error', error);
    this.emit('close', error !== undefined);
  }

  end(): void {
    setImmediate(() => this.lose());
  }

  destroy(): void {
    setImmediate(() => this.lose());
  }

  setKeepAlive(): void {}

  private send(...messages: Buffer[]): void {
    if (this.readyState === 'open') this.emit('data', Buffer.concat(messages));
  }

  private take(one: Buffer): void {
    const type = String.fromCharCode(one[0]!);
    const body = one.subarray(5);
    if (type === 'P') this.parsed = body.toString('utf8', body.indexOf(0) + 1).split('\0')[0]!;
    if (type !== 'Q' && type !== 'S') return;
    const text = (type === 'Q' ? body.toString('utf8', 0, body.length - 1) : this.parsed).trim();
    this.asked.push({ text, status: this.status });
    this.unanswered.push({ text, isSimple: type === 'Q' });
    setImmediate(() => this.server.onAsked(this, text));
  }
}

/**
 * A PostgreSQL server in memory that speaks just enough of the protocol (PostgreSQL manual, "Message Formats") for
 * statements without parameters and without rows. It answers at once unless a test replaces what it does.
 */
export class FakePostgres {
  readonly backends: FakeBackend[] = [];
  onStart: (backend: FakeBackend) => void = (backend) => backend.welcome();
  onAsked: (backend: FakeBackend, text: string) => void = (backend) => backend.answer();

  /** Where the driver connects; each call of `socket` is a new connection. */
  readonly connection = {
    host: 'fake',
    user: 'u',
    database: 'd',
    socket: () => {
      const backend = new FakeBackend(this);
      this.backends.push(backend);
      return backend;
    },
  } as unknown as postgres.Options<Record<string, never>>;

  get last(): FakeBackend {
    return this.backends.at(-1)!;
  }
}

function message(type: string, body: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeInt16BE(value);
  return bytes;
}
