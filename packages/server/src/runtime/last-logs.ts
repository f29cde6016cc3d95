import type { SandboxLogLines } from '../domain/ports/harness.ts';
import type { KeptSandbox } from './kept-sandbox.ts';

/** Each half a mebibyte at most. */
const LOGS_MAX = 20;

export interface LogOf {
  sandboxId: string;
  log: SandboxLogLines;
}

export const logOf = ({ id, link }: KeptSandbox): LogOf => ({ sandboxId: id, log: link.log });

/** The logs of the sandboxes that ended last, by agent: they say why. */
export class LastLogs {
  readonly #logs = new Map<string, LogOf>();

  add(kept: KeptSandbox): void {
    this.#logs.delete(kept.agentId);
    this.#logs.set(kept.agentId, logOf(kept));
    const [oldest] = this.#logs.keys();
    if (this.#logs.size > LOGS_MAX && oldest !== undefined) this.#logs.delete(oldest);
  }

  of(agentId: string): LogOf | null {
    return this.#logs.get(agentId) ?? null;
  }
}
