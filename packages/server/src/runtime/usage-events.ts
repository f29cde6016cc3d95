import type { EventBody } from '../domain/events.ts';
import { limits } from '../domain/limits.ts';
import { formatMicros } from '../domain/money.ts';
import type { ModelUsage } from '../domain/ports/model-gateway.ts';

type UsageEvent = Extract<EventBody, { type: 'usage.recorded' }>;
type Used = Pick<UsageEvent['data'], 'meter' | 'model' | 'quantity'> & { costMicros: bigint };

const { told: maxTold, alone: maxAlone, joinedMs, kinds: maxKinds } = limits.usageEventsPerTurn;
/** In place of a model's name, when too many different ones wait. */
const otherModels = 'others';

/**
 * What is told of a turn's model calls in its log. Each of the first calls is told by itself; of a turn that makes very
 * many, which a program in the sandbox can do thousands of times a second, the later ones are told joined, and so its
 * log has an end. The ledger and the run's sums do not come by here.
 */
export class UsageEvents {
  readonly #runId: string;
  readonly #append: (...events: EventBody[]) => void;
  #told = 0;
  readonly #waiting = new Map<string, Used>();
  #timer: NodeJS.Timeout | null = null;

  constructor(runId: string, append: (...events: EventBody[]) => void) {
    this.#runId = runId;
    this.#append = append;
  }

  /** The turn has made so many calls that they are joined. */
  get isJoining(): boolean {
    return this.#told >= maxAlone;
  }

  /** Gives the events to be told at once; the others follow by themselves. */
  take({ model, entries }: Pick<ModelUsage, 'model' | 'entries'>): EventBody[] {
    const used = entries.map(({ meter, quantity, costMicros }) => ({ meter, model, quantity, costMicros }));
    if (!this.isJoining) return this.#tell(used);
    for (const one of used) this.#join(one);
    this.#timer ??= setTimeout(() => this.#tellJoined(), joinedMs).unref();
    return [];
  }

  /** What waits is told now. */
  close(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    if (waiting.length > 0) this.#append(...this.#tell(waiting));
  }

  #tellJoined(): void {
    this.#timer = null;
    // Then it waits for the end of the turn, for which there is always room.
    if (this.#told + this.#waiting.size + 2 * maxKinds <= maxTold) this.close();
  }

  #join(used: Used): void {
    const { meter, model } = used;
    const key = `${meter} ${model}`;
    const isOther = !this.#waiting.has(key) && this.#waiting.size >= maxKinds;
    const known = this.#waiting.get(isOther ? `${meter} ${otherModels}` : key);
    if (known) {
      known.quantity += used.quantity;
      known.costMicros += used.costMicros;
    } else if (isOther) this.#waiting.set(`${meter} ${otherModels}`, { ...used, model: otherModels });
    else this.#waiting.set(key, used);
  }

  #tell(used: Used[]): EventBody[] {
    this.#told += used.length;
    return used.map(({ meter, model, quantity, costMicros }) => ({
      type: 'usage.recorded',
      data: { runId: this.#runId, meter, quantity, cost: formatMicros(costMicros), model },
    }));
  }
}
