import { randomUUID } from 'node:crypto';
import {
  failure,
  isRequest,
  isResponse,
  keyOf,
  ours,
  type Id,
  type Message,
  type Params,
} from './messages.ts';

/** One connection to the service. */
export interface Link {
  send(message: Message): void;
}

interface Pending {
  message: Message;
  /** False while it waits for a connection. */
  isSent: boolean;
}

interface OpenSession {
  cwd: string;
  /** The last event that the client was told of. */
  seq: number;
  /** What comes up to here was told before: its load is asked for once more. */
  toldBefore: number;
}

interface Update {
  sessionUpdate?: string;
  content?: { text?: string };
}

/** What the bridge itself asks the service has ids of its own. */
const OWN = 'berth-bridge-';

/**
 * Between an editor and the service: it passes messages on, and hides it when the connection is lost and another one
 * takes its place. The new one is made ready as the old one was, goes on in each session after the last event that the
 * client was told of, and gets the requests that were not answered once more. A prompt carries a key by which the
 * service knows it again, so that it is run once.
 */
export class Bridge {
  readonly #tell: (message: Message) => void;
  #link: Link | null = null;
  /** While a new connection is made ready, what the client says waits. */
  #isReady = false;
  #initialize: Message | null = null;
  #maxMessageBytes = Infinity;
  readonly #pending = new Map<string, Pending>();
  readonly #sessions = new Map<string, OpenSession>();
  /** Notifications and answers that came while there was no connection. */
  #waiting: Message[] = [];
  /** The service's requests, by the id that the client knows; each connection counts its own ids from 0. */
  readonly #asked = new Map<string, { id: Id; link: Link; askId: string | undefined }>();
  readonly #own = new Map<string, (message: Message) => void>();
  #count = 0;

  /** `tell` writes to the client. */
  constructor(tell: (message: Message) => void) {
    this.#tell = tell;
  }

  get isIdle(): boolean {
    return this.#pending.size === 0;
  }

  /** A line of the client. */
  takeLine(line: string): void {
    if (line.trim() === '') return;
    let message: Message;
    try {
      message = JSON.parse(line) as Message;
    } catch {
      return this.#tell(failure(null, -32700, 'Parse error'));
    }
    if (typeof message !== 'object' || message === null || Array.isArray(message))
      return this.#tell(failure(null, -32600, 'Invalid request: one message a line, no batches'));
    if (!isRequest(message) && !isResponse(message) && typeof message.method !== 'string')
      return this.#tell(failure(null, -32600, 'Invalid request'));
    if (Buffer.byteLength(line) > this.#maxMessageBytes) {
      const reason = `Invalid request: a message may have ${this.#maxMessageBytes} bytes`;
      return isRequest(message) ? this.#tell(failure(message.id!, -32600, reason)) : undefined;
    }
    this.#fromClient(message);
  }

  #fromClient(message: Message): void {
    if (isResponse(message)) return this.#answer(message);
    if (!isRequest(message)) {
      if (this.#isReady) this.#link!.send(message);
      else this.#waiting.push(message);
      return;
    }
    if (message.method === 'initialize') this.#initialize ??= message;
    else if (!this.#initialize)
      return this.#tell(failure(message.id!, -32600, 'Invalid request: send initialize first'));
    const marked = message.method === 'session/prompt' ? withKey(message) : message;
    // The client wants to be told all of it once more.
    if (message.method === 'session/load') this.#sessions.delete(message.params?.sessionId ?? '');
    const pending = { message: marked, isSent: this.#isReady };
    this.#pending.set(keyOf(message.id), pending);
    if (this.#isReady) this.#link!.send(marked);
  }

  /** An answer to a question of the service; to one of a lost connection, whose like has come again or will come. */
  #answer(message: Message): void {
    const asked = this.#asked.get(keyOf(message.id));
    if (!asked) return;
    if (asked.link !== this.#link) return void this.#waiting.push(message);
    this.#asked.delete(keyOf(message.id));
    this.#link.send({ ...message, id: asked.id });
  }

  /** There is a connection. Rejects when it is lost before it was made ready. */
  async connected(link: Link): Promise<void> {
    this.#link = link;
    if (this.#initialize && !this.#pending.has(keyOf(this.#initialize.id))) {
      await this.#ask('initialize', this.#initialize.params ?? {});
      for (const [sessionId, session] of this.#sessions) {
        if (this.#link !== link) return;
        const { cwd, seq } = session;
        if (this.#isLoading(sessionId)) {
          session.toldBefore = seq;
          continue;
        }
        // One that is gone meanwhile is told by the answers to what the client asks of it.
        const _meta = { 'berth.dev': { after: seq } };
        await this.#ask('session/resume', { sessionId, cwd, mcpServers: [], _meta });
      }
    }
    if (this.#link !== link) return;
    this.#isReady = true;
    for (const pending of this.#pending.values()) {
      pending.isSent = true;
      link.send(pending.message);
    }
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const message of waiting) {
      if (isResponse(message)) this.#answer(message);
      else link.send(message);
    }
  }

  #isLoading(sessionId: string): boolean {
    return [...this.#pending.values()].some(
      ({ message, isSent }) =>
        isSent && message.method === 'session/load' && message.params?.sessionId === sessionId,
    );
  }

  lost(link: Link): void {
    if (this.#link !== link) return;
    this.#link = null;
    this.#isReady = false;
    for (const settle of this.#own.values()) settle(failure(null, -32603, 'The connection was lost.'));
    this.#own.clear();
  }

  /** Nothing can be done any more: the client is told so for each request. */
  giveUp(reason: string): void {
    for (const { message } of this.#pending.values()) this.#tell(failure(message.id!, -32603, reason));
    this.#pending.clear();
  }

  /** Asks whether the service still answers; it knows no such method, and says so. */
  ping(): Promise<Message> {
    return this.#ask('_berth.dev/ping', {});
  }

  #ask(method: string, params: Params): Promise<Message> {
    const id = `${OWN}${(this.#count += 1)}`;
    return new Promise((resolve) => {
      this.#own.set(id, resolve);
      this.#link?.send({ jsonrpc: '2.0', id, method, params });
    });
  }

  /** A message of the service. */
  fromService(link: Link, message: Message): void {
    if (link !== this.#link) return;
    if (isResponse(message)) return this.#response(message);
    if (isRequest(message)) return this.#question(link, message);
    if (message.method === 'session/update') return this.#update(message);
    if (message.method === '$/cancel_request') return this.#cancelRequest(message);
    this.#tell(message);
  }

  #response(message: Message): void {
    const own = typeof message.id === 'string' ? this.#own.get(message.id) : undefined;
    if (own) {
      this.#own.delete(message.id as string);
      return own(message);
    }
    const pending = this.#pending.get(keyOf(message.id));
    this.#pending.delete(keyOf(message.id));
    if (pending && message.result) this.#learn(pending.message, message.result);
    // The client may begin once more, in another way.
    else if (pending !== undefined && pending.message === this.#initialize) this.#initialize = null;
    this.#tell(message);
  }

  /** Which sessions are open follows from what was asked and granted. */
  #learn({ method, params = {} }: Message, result: Record<string, unknown>): void {
    const cwd = params.cwd ?? '/';
    switch (method) {
      case 'initialize':
        this.#maxMessageBytes = ours(result).maxMessageBytes ?? Infinity;
        return;
      case 'session/new':
        this.#sessions.set(String(result['sessionId']), { cwd, seq: 0, toldBefore: 0 });
        return;
      case 'session/load':
      case 'session/resume': {
        const sessionId = params.sessionId ?? '';
        const seq = this.#sessions.get(sessionId)?.seq ?? ours(result).seq ?? 0;
        this.#sessions.set(sessionId, { cwd, seq, toldBefore: 0 });
        return;
      }
      case 'session/close':
      case 'session/delete':
        this.#sessions.delete(params.sessionId ?? '');
    }
  }

  #update(message: Message): void {
    const sessionId = message.params?.sessionId ?? '';
    const { seq } = ours(message.params);
    const session = this.#sessions.get(sessionId) ?? { cwd: '/', seq: 0, toldBefore: 0 };
    if (seq !== undefined && seq <= session.toldBefore) return;
    this.#sessions.set(sessionId, { ...session, seq: seq ?? session.seq });
    if (this.#isOwnWord(sessionId, message.params?.['update'] as Update | undefined)) return;
    this.#tell(message);
  }

  /** A prompt that was on its way when the connection was lost is news to the new one, but not to the client. */
  #isOwnWord(sessionId: string, update: Update | undefined): boolean {
    if (update?.sessionUpdate !== 'user_message_chunk') return false;
    return [...this.#pending.values()].some(({ message: { method, params } }) => {
      if (method !== 'session/prompt' || params?.sessionId !== sessionId) return false;
      const blocks = (params['prompt'] ?? []) as { text?: string }[];
      return blocks.map((block) => block.text ?? '').join('') === update.content?.text;
    });
  }

  /** One that the client was asked already, by a connection that is gone, is not put again. */
  #question(link: Link, message: Message): void {
    const askId = ours(message.params).requestId;
    for (const asked of this.#asked.values()) {
      if (askId === undefined || asked.askId !== askId) continue;
      asked.id = message.id!;
      asked.link = link;
      return;
    }
    const id = `berth-${(this.#count += 1)}`;
    this.#asked.set(keyOf(id), { id: message.id!, link, askId });
    this.#tell({ ...message, id });
  }

  #cancelRequest(message: Message): void {
    for (const [key, asked] of this.#asked) {
      if (asked.link !== this.#link || keyOf(asked.id) !== keyOf(message.params?.['requestId'] as Id))
        continue;
      this.#tell({ ...message, params: { requestId: JSON.parse(key) as Id } });
    }
  }
}

function withKey(message: Message): Message {
  const meta = message.params?._meta ?? {};
  const idempotencyKey = ours(message.params).idempotencyKey ?? randomUUID();
  const _meta = { ...meta, 'berth.dev': { ...ours(message.params), idempotencyKey } };
  return { ...message, params: { ...message.params, _meta } };
}
