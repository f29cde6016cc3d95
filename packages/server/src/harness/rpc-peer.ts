import { cleanMessage, isRecord, mayNeedCleaning } from './clean.ts';
import type { Json } from './clean.ts';

/** The other side answered a request with an error (JSON-RPC 2.0, section 5.1). */
export class RpcFailure extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export interface RpcPeerOptions {
  write: (line: string) => void;
  onNotification: (method: string, params: Json) => void;
  /** Resolves with the result; null = there is no such method here. */
  onRequest: (method: string, params: Json, id: string | number) => Promise<Json> | null;
  /** A line that is no JSON-RPC message. */
  onJunk: () => void;
}

interface Pending {
  resolve: (result: Json) => void;
  reject: (error: Error) => void;
}

/** Requests that waited for one thing are answered one after the other: so many before everything else has its turn. */
const answersAtOnce = 128;
const maxRepliesChars = 64 * 1024;

/** JSON-RPC 2.0 over lines, both ways. It never throws for what the other side sends. */
export class RpcPeer {
  readonly #options: RpcPeerOptions;
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #failure: Error | null = null;
  /** Requests whose answer is ready, and that wait for their turn to be answered. */
  #ready: (() => void)[] = [];
  #answered = 0;
  #isTurnDue = false;
  readonly #urgent = new WeakSet<Json>();
  /** Answers that leave together: each write is kept until the other side says that it has it, and thousands of them take long to forget. */
  #replies = '';

  constructor(options: RpcPeerOptions) {
    this.#options = options;
  }

  newId(): number {
    return this.#nextId++;
  }

  /** `id`: one of `newId`, by which another peer can take the answer (`expect`). */
  request(method: string, params: Json, id: number = this.newId()): Promise<Json> {
    const answer = this.expect(id);
    this.ask(id, method, params);
    return answer;
  }

  /** Makes a request whose answer is expected already. */
  ask(id: number, method: string, params: Json): void {
    if (!this.#failure) this.#send({ jsonrpc: '2.0', id, method, params });
  }

  /** The answer to a request that was made already. */
  expect(id: number): Promise<Json> {
    return new Promise((resolve, reject) => {
      if (this.#failure) return reject(this.#failure);
      this.#pending.set(id, { resolve, reject });
    });
  }

  /** Answers a request that another peer was asked. */
  answer(id: string | number, result: Json): void {
    this.#send({ jsonrpc: '2.0', id, result });
  }

  /** Ids from here on: those of an earlier process may still be answered. */
  skipTo(id: number): void {
    this.#nextId = Math.max(this.#nextId, id);
  }

  notify(method: string, params: Json): void {
    if (!this.#failure) this.#send({ jsonrpc: '2.0', method, params });
  }

  /** The result of a request that is written at once: in one write with what was noted of it, so that a kill leaves both or none. */
  atOnce(result: Json): Json {
    this.#urgent.add(result);
    return result;
  }

  /** Writes the answers that wait for others of the same tick. */
  flush(): void {
    const replies = this.#replies;
    this.#replies = '';
    if (replies !== '') this.#options.write(replies);
  }

  /** Rejects all that is open and all that follows. */
  fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }

  line(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
      if (mayNeedCleaning(line)) message = cleanMessage(message);
    } catch {
      return this.#options.onJunk();
    }
    if (!isRecord(message)) return this.#options.onJunk();
    const { id, method, params } = message;
    if (typeof method !== 'string') return this.#response(message);
    const given = isRecord(params) ? params : {};
    if (id === undefined) return this.#options.onNotification(method, given);
    if (typeof id !== 'string' && typeof id !== 'number') return this.#options.onJunk();
    void this.#answer(id, method, given);
  }

  #response({ id, result, error }: Json): void {
    const pending = typeof id === 'number' ? this.#pending.get(id) : undefined;
    if (!pending) return this.#options.onJunk();
    this.#pending.delete(id as number);
    if (error === undefined) return pending.resolve(isRecord(result) ? result : {});
    const { code, message, data } = isRecord(error) ? error : {};
    const text = typeof message === 'string' ? message : 'no reason given';
    pending.reject(new RpcFailure(typeof code === 'number' ? code : 0, text, data));
  }

  async #answer(id: string | number, method: string, params: Json): Promise<void> {
    try {
      const result = await this.#options.onRequest(method, params, id);
      if (result && this.#urgent.has(result)) return this.#send({ jsonrpc: '2.0', id, result });
      if (!this.#mayAnswer()) await new Promise<void>((resolve) => this.#ready.push(resolve));
      if (result) this.#reply({ jsonrpc: '2.0', id, result });
      else
        this.#reply({
          jsonrpc: '2.0',
          id,
          error: { code: -32601, message: `There is no method "${method}" here.` },
        });
    } catch {
      // What went wrong on the host is none of the sandbox's business.
      this.#reply({ jsonrpc: '2.0', id, error: { code: -32603, message: 'The request failed.' } });
    }
  }

  #mayAnswer(): boolean {
    this.#answered += 1;
    if (!this.#isTurnDue) setImmediate(() => this.#nextTurn());
    this.#isTurnDue = true;
    return this.#ready.length === 0 && this.#answered <= answersAtOnce;
  }

  #nextTurn(): void {
    const next = this.#ready.splice(0, answersAtOnce);
    this.#answered = next.length;
    this.#isTurnDue = next.length > 0;
    if (this.#isTurnDue) setImmediate(() => this.#nextTurn());
    for (const answer of next) answer();
  }

  #send(message: Json): void {
    // In one write with the answers that wait: else what was noted of the message would leave with those, and before it.
    const replies = this.#replies;
    this.#replies = '';
    this.#options.write(`${replies}${JSON.stringify(message)}\n`);
  }

  #reply(message: Json): void {
    if (this.#replies === '') process.nextTick(() => this.flush());
    this.#replies += `${JSON.stringify(message)}\n`;
    if (this.#replies.length > maxRepliesChars) this.flush();
  }
}
