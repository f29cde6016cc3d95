import { setTimeout as delay } from 'node:timers/promises';
import { BerthError, type InboundEvent } from '@berth/sdk';
import type { Context } from './command.ts';
import { safe } from './print.ts';

const LOOK_EVERY_MS = 1_000;
/** So many events are looked at in one go, when so much comes in. */
const PAGES_MAX = 20;
const unfinished = new Set(['queued', 'processing']);

/** Prints what comes in from now on, and again whenever its state changes. Ends when the context is cancelled. */
export async function tailEvents(
  context: Context,
  agentId: string,
  channelId: string | undefined,
): Promise<void> {
  const { client, signal } = context;
  const seen = new Map<string, string>();
  /** Nothing older can change any more, or was there before. */
  let oldest: string | null = null;

  /** The newest first, as far back as something may have changed. */
  async function recent(): Promise<InboundEvent[]> {
    const found: InboundEvent[] = [];
    let cursor: string | null = null;
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const query: { limit: number; cursor?: string } = {
        limit: 100,
        ...(cursor === null ? {} : { cursor }),
      };
      const { items, nextCursor } = await client.inboundEvents.list(agentId, query);
      found.push(...items);
      cursor = nextCursor;
      const last = items.at(-1);
      if (cursor === null || last === undefined || oldest === null || last.id < oldest) break;
    }
    return found;
  }

  for (let looks = 0; !signal.aborted; looks += 1) {
    try {
      const events = await recent();
      for (const event of events.toReversed()) {
        const told = `${event.state} ${event.reason ?? ''} ${event.retryCount}`;
        const isNew = seen.get(event.id) !== told;
        seen.set(event.id, told);
        const isOurs = channelId === undefined || event.channelId === channelId;
        if (isNew && isOurs && looks > 0) show(context, event);
      }
      oldest = events.findLast((event) => unfinished.has(event.state))?.id ?? events[0]?.id ?? '';
      if (looks === 0) context.note('waiting for what comes in\n');
      for (const id of seen.keys())
        if (id < oldest && !events.some((event) => event.id === id)) seen.delete(id);
    } catch (error) {
      if (signal.aborted) return;
      const isAway = error instanceof BerthError && (error.status === 0 || error.status >= 500);
      if (!isAway || looks === 0) throw error;
      context.note(`${error.message} Trying again.\n`);
    }
    await delay(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
}

function show(context: Context, event: InboundEvent): void {
  if (context.json) return context.out(`${JSON.stringify(event)}\n`);
  const rest = [
    ...(event.retryCount > 0 ? [`delivered ${event.retryCount + 1} times`] : []),
    ...(event.reason === null ? [] : [event.reason]),
  ];
  const line = [event.receivedAt, event.kind.padEnd(20), event.state.padEnd(10), event.id, ...rest];
  context.out(`${safe(line.join('  '))}\n`);
}
