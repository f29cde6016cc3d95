import type { SandboxLogLines } from '../domain/ports/harness.ts';
import type { KeptSandbox } from './kept-sandbox.ts';

/** Each half a mebibyte at most. */
const LOGS_MAX = 20;

export interface LogOf {
  sandboxId: string;
  log: SandboxLogLines;
}

export const logOf = ({ id, link }: KeptSandbox): LogOf => ({ sandboxId: id, log: link.log });

/** The line that says why a sandbox did not start. */
export const startFailed = (reason: string): string => `berth: The start has failed. ${reason}`;

/** By agent, the logs of sandboxes that are being started, and of those that ended or did not start last: they say why. */
export class LastLogs {
  readonly #starting = new Map<string, LogOf>();
  readonly #ended = new Map<string, LogOf>();

  /** Its harness may say something from now on. */
  starting(agentId: string, log: LogOf): void {
    this.#starting.set(agentId, log);
  }

  /** From here on whoever keeps the sandbox has its log. */
  started(agentId: string): void {
    this.#starting.delete(agentId);
  }

  /** One that came to no log of its own has one of the reason. */
  failed(agentId: string, sandboxId: string, reason: string): void {
    const log = this.#starting.get(agentId) ?? { sandboxId, log: oneLine(startFailed(reason)) };
    this.#starting.delete(agentId);
    this.ended(agentId, log);
  }

  ended(agentId: string, log: LogOf): void {
    this.#ended.delete(agentId);
    this.#ended.set(agentId, log);
    const [oldest] = this.#ended.keys();
    if (this.#ended.size > LOGS_MAX && oldest !== undefined) this.#ended.delete(oldest);
  }

  of(agentId: string): LogOf | null {
    return this.#starting.get(agentId) ?? this.#ended.get(agentId) ?? null;
  }
}

function oneLine(text: string): SandboxLogLines {
  const line = { number: 1, at: new Date(), text };
  return {
    after: (number) => (number < line.number ? [line] : []),
    changed: async () => undefined,
    note: () => undefined,
    isClosed: true,
  };
}
