/** The other side: whole lines in both directions. */
export interface Lines {
  write(lines: string): void;
  /** Given once; whole lines with their newlines. */
  onLines: (lines: Buffer) => void;
  onEnd: () => void;
}

/** An error with a JSON-RPC code (JSON-RPC 2.0, section 5.1); its text goes to the other side. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

type Params = Record<string, unknown>;

export interface RpcHandlers {
  requests: Record<string, (params: Params) => unknown>;
  notifications: Record<string, (params: Params) => void>;
}

/** JSON-RPC 2.0, one message a line. */
export class RpcServer {
  readonly #lines: Lines;
  readonly #handlers: RpcHandlers;
  #waiting = '';
  #lastId = 0;
  readonly #asked = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();

  constructor(lines: Lines, handlers: RpcHandlers) {
    this.#lines = lines;
    this.#handlers = handlers;
  }

  /** Resolves when the other side wants no more. */
  serve(): Promise<void> {
    this.#lines.onLines = (lines) => {
      for (const line of lines.toString('utf8').split('\n')) if (line.trim() !== '') this.#line(line);
    };
    return new Promise((resolve) => {
      this.#lines.onEnd = () => {
        for (const { reject } of this.#asked.values()) reject(new Error('The input has ended.'));
        this.#asked.clear();
        resolve();
      };
    });
  }

  /** Asks the other side; resolves with its answer, rejects when it refused or its input has ended. */
  ask(method: string, params: Params): Promise<unknown> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { resolve, reject });
      this.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  }

  /** Lines of one turn of the event loop leave in one write. */
  write(line: string): void {
    if (this.#waiting === '') setImmediate(() => this.flush());
    this.#waiting += line;
  }

  flush(): void {
    const text = this.#waiting;
    this.#waiting = '';
    if (text !== '') this.#lines.write(text);
  }

  #line(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      return this.#fail(null, new RpcError(-32700, 'The line is not JSON.'));
    }
    if (typeof message !== 'object' || message === null || Array.isArray(message)) {
      return this.#fail(null, new RpcError(-32600, 'A message is a JSON object.'));
    }
    const { id, method, params } = message as Params;
    if (typeof method !== 'string') return this.#response(message as Params);
    const given = typeof params === 'object' && params !== null ? (params as Params) : {};
    if (id === undefined) return this.#notification(method, given);
    if (typeof id !== 'string' && typeof id !== 'number') {
      return this.#fail(null, new RpcError(-32600, 'An id is a text or a number.'));
    }
    void this.#request(id, method, given);
  }

  #response({ id, error, result }: Params): void {
    const asked = this.#asked.get(Number(id));
    this.#asked.delete(Number(id));
    if (error === undefined) asked?.resolve(result);
    else asked?.reject(new Error('The other side refused.'));
  }

  #notification(method: string, params: Params): void {
    try {
      if (Object.hasOwn(this.#handlers.notifications, method)) this.#handlers.notifications[method]?.(params);
    } catch (error) {
      process.stderr.write(`${method}: ${String(error)}\n`);
    }
  }

  async #request(id: string | number, method: string, params: Params): Promise<void> {
    try {
      const handler = Object.hasOwn(this.#handlers.requests, method)
        ? this.#handlers.requests[method]
        : undefined;
      if (!handler) throw new RpcError(-32601, `There is no method "${method}".`);
      const result = (await handler(params)) ?? {};
      this.write(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${JSON.stringify(result)}}\n`);
    } catch (error) {
      this.#fail(id, error);
    }
  }

  #fail(id: string | number | null, error: unknown): void {
    const known = error instanceof RpcError;
    if (!known) process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    const shape = known
      ? {
          code: error.code,
          message: error.message,
          ...(error.data === undefined ? {} : { data: error.data }),
        }
      : { code: -32603, message: 'The harness met an error of its own.', data: { code: 'harness_error' } };
    this.write(`${JSON.stringify({ jsonrpc: '2.0', id, error: shape })}\n`);
  }
}
