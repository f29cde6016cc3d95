import type { Engine } from './engine.ts';

/** On a machine under load 80 ms were seen; the container is kept for so long, and only after a kill nobody asked for. */
const LATE_MS = 2000;
/** What may have come since the end of the container was told. */
const EARLIER_MS = 60_000;

/**
 * Whether Docker tells within two seconds of the container's end that the kernel killed in it for want of memory. That
 * event and the end come to Docker from different threads of another process, in any order, and `State.OOMKilled` has
 * only what came first: Docker 20.10 takes it over at the end, and later versions too may be asked before it is there.
 * Never throws.
 */
export async function tellsOfOom(engine: Engine, name: string, lateMs = LATE_MS): Promise<boolean> {
  const now = Date.now();
  const filters = encodeURIComponent(
    JSON.stringify({ type: ['container'], event: ['oom'], container: [name] }),
  );
  const between = `since=${seconds(now - EARLIER_MS)}&until=${seconds(now + lateMs)}`;
  let timer: NodeJS.Timeout | undefined;
  try {
    const events = await engine.stream('GET', `/events?${between}&filters=${filters}`);
    // The engine ends it; a clock that is set meanwhile must not hold the end of a sandbox.
    timer = setTimeout(() => events.destroy(), 2 * lateMs).unref();
    for await (const piece of events as AsyncIterable<Buffer>) if (piece.length > 0) return true;
  } catch {
    // Without an engine nothing is told any more.
  } finally {
    clearTimeout(timer);
  }
  return false;
}

const seconds = (ms: number): string => (ms / 1000).toFixed(3);
