import { atLeast, atMost, figure } from '../lib/figure.ts';
import type { Figure } from '../lib/figure.ts';
import { watchPeakRssMb } from '../lib/memory.ts';
import { answerOf, messageOf } from '../lib/script.ts';
import { quantile } from '../lib/stats.ts';
import type { World } from '../lib/world.ts';

const STREAMS = 500;
const SCRIPT = { tokens: 40, firstMs: 0, gapMs: 500 };
const DEADLINE_MS = 90_000;

/** 500 conversations stream at once, each 40 tokens half a second apart; all are sent in the same moment. */
export async function manyStreams(world: World): Promise<Figure[]> {
  const content = messageOf(SCRIPT);
  const expected = answerOf(SCRIPT.tokens).trim();
  const peak = watchPeakRssMb(world.service.pid);
  const late = AbortSignal.timeout(DEADLINE_MS);
  const tooLate = new Promise<never>((_, reject) => {
    late.addEventListener('abort', () => reject(new Error('The streams did not end in time.')));
  });
  const all = Array.from({ length: STREAMS }, () => world.client.stream(world.agentId, null, content));
  const settled = await Promise.race([Promise.allSettled(all), tooLate]);
  const peakMb = peak.stop();
  const ended = settled.filter((result) => result.status === 'fulfilled').map((result) => result.value);
  const whole = ended.filter(
    (stream) => stream.status === 'run.completed' && stream.text.trim() === expected,
  );
  const firstMs = ended.map((stream) => stream.firstMs);
  const gapsMs = ended.flatMap((stream) => stream.gapsMs);
  return [
    figure('500 streams, finished with the whole text', '', whole.length, { target: atLeast(STREAMS) }),
    figure('500 streams, first token p50', 'ms', quantile(firstMs, 0.5)),
    figure('500 streams, first token p99', 'ms', quantile(firstMs, 0.99), { target: atMost(500) }),
    figure('500 streams, gap p50', 'ms', quantile(gapsMs, 0.5)),
    figure('500 streams, gap p99', 'ms', quantile(gapsMs, 0.99), { target: atMost(700) }),
    figure('500 streams, peak memory of the service', 'MB', peakMb, { target: atMost(250) }),
  ];
}
