import type { Log } from '../domain/log.ts';

const EVERY_MS = 1000;

export interface Sampled {
  id: string;
  sample(): Promise<void>;
}

/** Looks at every running sandbox once a second, for what the kernel does not add up over time. */
export class Sampler {
  private readonly sandboxes = new Map<string, Sampled>();
  private readonly log: Log;
  private timer: NodeJS.Timeout | null = null;

  constructor(log: Log) {
    this.log = log;
  }

  add(sandbox: Sampled): void {
    this.sandboxes.set(sandbox.id, sandbox);
    this.timer ??= setInterval(() => this.tick(), EVERY_MS).unref();
  }

  remove(id: string): void {
    this.sandboxes.delete(id);
    if (this.sandboxes.size === 0) this.close();
  }

  close(): void {
    if (this.timer) clearInterval(this.timer);
    this.timer = null;
  }

  private tick(): void {
    for (const sandbox of this.sandboxes.values())
      sandbox.sample().catch((error: unknown) =>
        this.log.warn('A sandbox could not be looked at.', {
          sandboxId: sandbox.id,
          error: String(error),
        }),
      );
  }
}
