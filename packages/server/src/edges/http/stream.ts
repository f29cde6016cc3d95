import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { hasSideEnded, onSideEnded } from '../../domain/one-request.ts';
import type { ConversationEvent } from '../../domain/events.ts';
import type { EventSink } from '../../services/api.ts';
import { eventOf } from '../present/events.ts';
import type { Head } from './answer.ts';
import { cutAnswer } from './gone.ts';
import { probeUntilClosed } from './half-closed.ts';
import type { TextSink } from './route.ts';

/** The text of one event in a stream, with the blank line that ends it; `''` for one that is not told. */
export type EventFrame = (event: ConversationEvent) => string;

/** Where the events of the log go, and text of any other kind. */
export interface StreamSink extends EventSink, TextSink {
  /** Text of the stream as it is. What comes within one turn of the event loop leaves together. */
  raw(text: string): void;
  /** So much waits that whoever can wait does: until `drained`. */
  readonly isFull: boolean;
}

/** More than this is not held back for the end of the turn of the event loop. */
const FULL_BYTES = 64 * 1024;

export interface StreamOptions {
  heartbeatMs: number;
  /** A client with more than this unread is let go; it resumes by `Last-Event-ID`. */
  maxUnreadBytes: number;
}

export interface Streams {
  /** How many are open. */
  readonly size: number;
  /** Answers with the events that `begin` sends to the sink. What `begin` throws before it writes is thrown here. */
  open(
    response: ServerResponse,
    head: Head,
    begin: (sink: StreamSink) => Promise<() => void>,
    frame?: EventFrame,
  ): Promise<Response>;
  /** Ends all of them; clients resume elsewhere. */
  endAll(): void;
}

/**
 * Server-sent events (WHATWG HTML, section 9.2), written to the Node response itself: a web stream in between doubles
 * the cost of an event. What comes within one turn of the event loop goes out in one write per stream.
 */
export function createStreams(options: StreamOptions): Streams {
  const all = new Set<Stream>();
  let dirty: Stream[] = [];
  const flushAll = () => {
    const batch = dirty;
    dirty = [];
    for (const stream of batch) stream.flush();
  };
  const markDirty = (stream: Stream) => {
    if (dirty.push(stream) === 1) setImmediate(flushAll);
  };

  return {
    get size() {
      return all.size;
    },
    async open(response, head, begin, toText = frame) {
      const stream = new Stream(response, head, options, markDirty, toText);
      // Of a client that has left already no close is told any more.
      if (response.destroyed) stream.close();
      else all.add(stream);
      // Whether a client that has ended its side is still there is known when something was sent to it (half-closed.ts).
      const { socket } = response;
      const probe = () =>
        probeUntilClosed(response, () => {
          if (stream.begun) stream.raw(':\n\n');
        });
      if (socket && hasSideEnded(socket)) probe();
      const forget = socket && !hasSideEnded(socket) ? onSideEnded(socket, probe) : undefined;
      response.once('close', () => {
        forget?.();
        all.delete(stream);
        stream.close();
      });
      try {
        stream.attach(await begin(stream));
      } catch (error) {
        all.delete(stream);
        if (!stream.begun) throw error;
        cutAnswer(response);
        throw error;
      }
      return RESPONSE_ALREADY_SENT;
    },
    endAll() {
      for (const stream of all) stream.end();
    },
  };
}

class Stream implements StreamSink {
  readonly #response: ServerResponse;
  readonly #head: Head;
  readonly #options: StreamOptions;
  readonly #markDirty: (stream: Stream) => void;
  readonly #frame: EventFrame;
  #pending = '';
  #isDirty = false;
  #closed = false;
  /** Set once the head is made: whether pieces go out as chunks, which an HTTP/1.0 client does not know. */
  #isChunked = false;
  #stop: (() => void) | null = null;
  #heartbeat: NodeJS.Timeout | null = null;

  constructor(
    response: ServerResponse,
    head: Head,
    options: StreamOptions,
    markDirty: (stream: Stream) => void,
    toText: EventFrame,
  ) {
    this.#response = response;
    this.#head = head;
    this.#options = options;
    this.#markDirty = markDirty;
    this.#frame = toText;
  }

  get begun(): boolean {
    return this.#response.headersSent;
  }

  write(events: ConversationEvent[]): boolean {
    if (this.#closed) return false;
    // What was written before this call counts, not this call itself: one large event never shuts a client out.
    if (this.#response.writableLength + this.#pending.length > this.#options.maxUnreadBytes) {
      cutAnswer(this.#response);
      this.close();
      return false;
    }
    for (const event of events) this.#pending += this.#frame(event);
    this.#flushSoon();
    return true;
  }

  raw(text: string): void {
    if (this.#closed) return;
    this.#pending += text;
    this.#flushSoon();
  }

  get isFull(): boolean {
    return this.#response.writableNeedDrain || this.#pending.length > FULL_BYTES;
  }

  send(event: string, data: unknown, id?: string): boolean {
    if (this.#closed) return false;
    const wasEmpty = this.#pending === '';
    this.#pending += textFrame(event, data, id);
    if (wasEmpty) this.#markDirty(this);
    return true;
  }

  drained(): Promise<void> {
    this.flush();
    const response = this.#response;
    if (this.#closed || !response.writableNeedDrain) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        response.off('drain', done).off('close', done);
        resolve();
      };
      response.on('drain', done).on('close', done);
    });
  }

  end(): void {
    if (this.#closed) return;
    this.#begin();
    // The last events and the end leave in one write.
    this.#response.end(this.#chunk(this.#pending) + (this.#isChunked ? '0\r\n\r\n' : ''));
    this.close();
  }

  /** The follower is in place: the client sees the head in this turn of the event loop, with the first events if there are. */
  attach(stop: () => void): void {
    if (this.#closed) return stop();
    this.#stop = stop;
    this.#begin();
    this.#flushSoon();
    this.#heartbeat = setInterval(
      () => this.#response.write(this.#chunk(':\n\n')),
      this.#options.heartbeatMs,
    );
    this.#heartbeat.unref();
  }

  flush(): void {
    this.#isDirty = false;
    if (this.#closed) return;
    this.#begin();
    if (this.#pending === '') return this.#response.flushHeaders();
    this.#response.write(this.#chunk(this.#pending));
    this.#pending = '';
  }

  close(): void {
    this.#closed = true;
    this.#pending = '';
    if (this.#heartbeat) clearInterval(this.#heartbeat);
    const stop = this.#stop;
    this.#stop = null;
    stop?.();
  }

  #flushSoon(): void {
    if (this.#isDirty) return;
    this.#isDirty = true;
    this.#markDirty(this);
  }

  /** One piece of the body in the chunked coding (RFC 9112, section 7.1), or as it is where that is not spoken. */
  #chunk(text: string): string {
    if (!this.#isChunked || text === '') return text;
    return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  }

  #begin(): void {
    if (this.#response.headersSent) return;
    this.#response.writeHead(200, {
      ...this.#head,
      'Content-Type': 'text/event-stream; charset=utf-8',
      // A reverse proxy that collects an answer before it passes it on would hold the events back.
      'X-Accel-Buffering': 'no',
    });
    // Node would write each chunk as four pieces, which costs several times as much as one text.
    this.#isChunked = this.#response.chunkedEncoding;
    this.#response.chunkedEncoding = false;
  }
}

function textFrame(event: string, data: unknown, id: string | undefined): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** JSON text has no raw line break, so that one `data:` line is enough. */
export function frame(event: ConversationEvent): string {
  return `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(eventOf(event))}\n\n`;
}
