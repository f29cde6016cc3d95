import { GatewayClient } from './http.ts';
import { SseReader } from './sse.ts';
import { ModelError } from './wire.ts';
import type { ModelReply, ReplySink, RequestParts, Wire } from './wire.ts';

export interface RetryPolicy {
  attempts: number;
  baseMs: number;
  maxMs: number;
  /** So long a provider that cannot be reached is tried for; `firstMs` while it has never answered this process. */
  unreachable: { firstMs: number; laterMs: number };
  /** So long it is waited for a gateway that is shut, which is no attempt: no provider was asked. */
  shutMs: number;
}

/** Those who waited for the gateway do not all come in the same moment. */
const spreadMs = 100;

/** One that never answered has a wrong address or no network in between, and somebody waits to be told. */
export const defaultRetry: RetryPolicy = {
  attempts: 6,
  baseMs: 500,
  maxMs: 15_000,
  unreachable: { firstMs: 8_000, laterMs: 30_000 },
  shutMs: 60_000,
};

/** The service, which may be restarted while a model answers. */
export interface Host {
  /** Counts how often it was there anew. */
  readonly connections: number;
  /** Resolves at once while it is there, else when it is back. */
  back(): Promise<void>;
  /** Whether it has been away since `connections` was read, as far as can be told within a moment. */
  wasAway(connections: number): Promise<boolean>;
}

export interface ModelOptions {
  gateway: GatewayClient;
  wire: Wire;
  provider: string;
  model: string;
  token: string;
  retry: RetryPolicy;
  host: Host;
}

export interface CallOptions extends Omit<RequestParts, 'model' | 'maxOutputTokens'> {
  sessionId: string;
  signal: AbortSignal;
  sink: ReplySink;
}

/** The agent's model: one call is one streamed answer, tried again as long as nothing of it was shown. */
export class Model {
  readonly #options: ModelOptions;
  readonly #headers: Record<string, string>;
  #maxOutputTokens = 16_384;
  #hasAnswered = false;

  constructor(options: ModelOptions) {
    this.#options = options;
    this.#headers = options.wire.headers(options.token);
  }

  get wire(): Wire {
    return this.#options.wire;
  }

  /** Rejects with ModelError, or with the signal's reason. */
  async call(call: CallOptions): Promise<ModelReply> {
    const { host } = this.#options;
    let begunMs = performance.now();
    let shutSinceMs: number | null = null;
    for (let attempt = 1; ; attempt++) {
      const sink = new CoalescingSink(call.sink);
      const { connections } = host;
      const triedAtMs = performance.now();
      try {
        const reply = await this.#once(call, sink);
        this.#hasAnswered = true;
        return reply;
      } catch (error) {
        sink.flush();
        if (!(error instanceof ModelError)) throw error;
        shutSinceMs = error.isShut ? (shutSinceMs ?? triedAtMs) : null;
        if (shutSinceMs !== null && triedAtMs - shutSinceMs < this.#options.retry.shutMs) {
          await this.#letIn(call.signal);
          // Nobody was asked: it is no attempt, and none of the time that a provider has.
          begunMs += performance.now() - triedAtMs;
          attempt -= 1;
          continue;
        }
        if (error.isLost && !call.signal.aborted && (await host.wasAway(connections))) {
          await unlessAborted(host.back(), call.signal);
          error.isCut = sink.shown;
          if (error.isCut) throw error;
          // Nobody has seen anything of it, and it was no fault of the provider.
          attempt -= 1;
          continue;
        }
        if (sink.shown) throw error;
        if (this.#lowerOutputLimit(error)) continue;
        const waitMs = error.retryAfterMs ?? this.#backoffMs(attempt);
        const triedMs = performance.now() - begunMs;
        const isLate = error.isUnreachable && triedMs + waitMs > this.#unreachableMs;
        if (!error.retryable || isLate || attempt >= this.#options.retry.attempts) {
          throw error.isUnreachable ? unreachable(error, triedMs) : error;
        }
        await pause(waitMs, call.signal);
      }
    }
  }

  async #once(call: CallOptions, sink: CoalescingSink): Promise<ModelReply> {
    const { gateway, wire, provider, model } = this.#options;
    const reader = wire.reader(sink);
    const events = new SseReader((data) => reader.event(data));
    await gateway.post({
      path: `/llm/${provider}${wire.path}`,
      headers: { ...this.#headers, 'x-berth-session': call.sessionId },
      body: wire.body({ ...call, model, maxOutputTokens: this.#maxOutputTokens }),
      signal: call.signal,
      onData: (chunk) => events.push(chunk),
    });
    events.end();
    sink.flush();
    return reader.finish();
  }

  /** Waits a moment, and then until the gateway lets somebody in, or about as long as it is waited for at all. */
  async #letIn(signal: AbortSignal): Promise<void> {
    const { gateway, retry } = this.#options;
    const untilMs = performance.now() + retry.shutMs;
    let isOpen = false;
    while (!isOpen && performance.now() < untilMs)
      await unlessAborted(
        gateway.letsIn().then((is) => void (isOpen = is)),
        signal,
      );
    await pause(Math.random() * spreadMs, signal);
  }

  get #unreachableMs(): number {
    const { firstMs, laterMs } = this.#options.retry.unreachable;
    return this.#hasAnswered ? laterMs : firstMs;
  }

  /** Full jitter: many agents that met the same 429 do not come back at the same moment. */
  #backoffMs(attempt: number): number {
    const { baseMs, maxMs } = this.#options.retry;
    return Math.random() * Math.min(maxMs, baseMs * 2 ** attempt);
  }

  /** Older models of the Anthropic wire allow less output than we ask for, and say how much. */
  #lowerOutputLimit(error: ModelError): boolean {
    const allowed = Number(/max_tokens: \d+ > (\d+)/.exec(error.message)?.[1] ?? 0);
    if (allowed < 1 || allowed >= this.#maxOutputTokens) return false;
    this.#maxOutputTokens = allowed;
    return true;
  }
}

function unreachable({ message }: ModelError, triedMs: number): ModelError {
  const seconds = Math.max(1, Math.round(triedMs / 1000));
  const tried = `It was tried for ${seconds} s; look at the network of the service and the address of the provider.`;
  return new ModelError('model_error', `${message} ${tried}`, { isUnreachable: true });
}

/** Less than the gateway joins for: what has waited there goes on at once. */
const joinMs = 20;

/**
 * Joins text that comes in quick succession, since every update costs each process on its way a wake-up. The first text
 * goes out at once, and so does what comes after a pause; the end of the answer waits for nothing. Order is kept.
 */
class CoalescingSink implements ReplySink {
  readonly #target: ReplySink;
  #kind: 'text' | 'thought' = 'text';
  #waiting = '';
  #timer: NodeJS.Timeout | null = null;
  #sentAt = 0;
  shown = false;

  constructor(target: ReplySink) {
    this.#target = target;
  }

  text(delta: string): void {
    this.#add('text', delta);
  }

  thought(delta: string): void {
    this.#add('thought', delta);
  }

  flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#waiting === '') return;
    const text = this.#waiting;
    this.#waiting = '';
    this.#sentAt = performance.now();
    this.shown = true;
    this.#target[this.#kind](text);
  }

  #add(kind: 'text' | 'thought', delta: string): void {
    if (kind !== this.#kind) {
      this.flush();
      this.#kind = kind;
    }
    this.#waiting += delta;
    if (this.#timer !== null || this.#waiting.length > delta.length) return;
    const waitMs = this.#sentAt + joinMs - performance.now();
    // HTTP hands one read of the socket on chunk by chunk; the tick ends after the last of them.
    if (waitMs <= 0) process.nextTick(() => this.flush());
    else this.#timer = setTimeout(() => this.flush(), waitMs);
  }
}

function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    void work.then(() => {
      signal.removeEventListener('abort', abort);
      resolve();
    });
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal.addEventListener('abort', abort, { once: true });
  });
}
