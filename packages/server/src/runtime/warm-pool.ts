import { mkdir, rm } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { join } from 'node:path';
import { newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { HarnessLaunch } from '../domain/ports/harness.ts';
import type { BlankSandbox, SandboxDriver, SandboxLimits } from '../domain/ports/sandbox.ts';

export interface WarmPoolOptions {
  driver: Pick<SandboxDriver, 'prepare'>;
  /** Sandboxes that are kept ready; 0 = none. */
  size: number;
  /** What waits in them. */
  launch: HarnessLaunch;
  /** Those of every agent that sets none of its own: only such agents are served. */
  limits: SandboxLimits;
  isDetached: boolean;
  paths: { run: string };
  log: Log;
  /** For tests; see below. */
  quietMs?: number;
}

/** New ones are made after the start that took one has had its time of the machine. */
const QUIET_MS = 1_000;
/** Where one cannot be made, or does not live, nothing is gained by haste. */
const RETRY_MS = 30_000;

/**
 * Sandboxes that are nobody's yet: each is taken once, by one agent, and never comes back. They end with the service, however
 * that ends, since what waits in them ends when its input does.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #ready = new Map<string, BlankSandbox>();
  #making: string | null = null;
  #filling: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | null = null;
  #isOpen = false;

  constructor(options: WarmPoolOptions) {
    this.#options = options;
  }

  /** Of all that are on the host or on their way. */
  get ids(): string[] {
    return [...this.#ready.keys(), ...(this.#making === null ? [] : [this.#making])];
  }

  /** How many can be taken. */
  get size(): number {
    return this.#ready.size;
  }

  begin(): void {
    this.#isOpen = true;
    this.#fillAfter(this.#quietMs);
  }

  /** The oldest one, if it is of these limits. Whoever takes it claims or discards it, and its run directory is theirs. */
  take(limits: SandboxLimits): BlankSandbox | null {
    if (!isDeepStrictEqual(limits, this.#options.limits)) return null;
    const [blank] = this.#ready.values();
    if (!blank) return null;
    this.#ready.delete(blank.id);
    this.#fillAfter(this.#quietMs);
    return blank;
  }

  /** A sandbox is being started for an agent: that comes first. */
  makeWay(): void {
    if (this.#timer) this.#fillAfter(this.#quietMs);
  }

  /** Ends all that nobody took. */
  async close(): Promise<void> {
    this.#isOpen = false;
    if (this.#timer) clearTimeout(this.#timer);
    await this.#filling;
    const left = [...this.#ready.values()];
    this.#ready.clear();
    await Promise.all(left.map((blank) => this.#discard(blank)));
  }

  get #quietMs(): number {
    return this.#options.quietMs ?? QUIET_MS;
  }

  #fillAfter(ms: number): void {
    if (!this.#isOpen || this.#options.size === 0) return;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#filling = this.#filling.then(() => this.#fill());
    }, ms);
    this.#timer.unref();
  }

  /** One after another, so that they take little of the machine at a time. Never rejects. */
  async #fill(): Promise<void> {
    while (this.#isOpen && this.#timer === null && this.#ready.size < this.#options.size) {
      try {
        await this.#make(newId());
      } catch (error) {
        this.#options.log.warn('No sandbox could be kept ready; it is tried again.', {
          error: String(error),
        });
        this.#fillAfter(RETRY_MS);
      }
    }
  }

  async #make(id: string): Promise<void> {
    const { driver, launch, limits, isDetached, paths } = this.#options;
    const runDir = join(paths.run, id);
    this.#making = id;
    try {
      await mkdir(runDir, { recursive: true, mode: 0o755 });
      const blank = await driver.prepare({ id, runDir, ...launch, limits, detached: isDetached });
      this.#ready.set(id, blank);
      void blank.ended.then(() => this.#lost(id));
    } catch (error) {
      await rm(runDir, { recursive: true, force: true });
      throw error;
    } finally {
      this.#making = null;
    }
  }

  /** It ended by itself, which it should not. */
  #lost(id: string): void {
    if (!this.#ready.delete(id)) return;
    this.#options.log.warn('A sandbox of the pool ended before it was used.', { sandboxId: id });
    void rm(join(this.#options.paths.run, id), { recursive: true, force: true }).catch(() => undefined);
    this.#fillAfter(RETRY_MS);
  }

  async #discard(blank: BlankSandbox): Promise<void> {
    await blank.discard();
    await rm(join(this.#options.paths.run, blank.id), { recursive: true, force: true });
  }
}
