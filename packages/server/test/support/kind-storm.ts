import { numberedMark } from './provider-apis.ts';
import { everybody, said, type KindSide, type KindWorld } from './kind-world.ts';
import { seeded } from './scripts.ts';

/** What a kind's provider was asked to send in the end. */
export interface KindReport {
  title: string;
  messages: number;
  turns: number;
  answers: number;
  /** How often the same was sent again under an id that makes no second one. */
  repeats: number;
  /** Messages with more than one answer. */
  twice: number;
  /** Answers that are not to the message where they are. */
  wrong: number;
  strange: number;
}

async function report(
  world: KindWorld,
  side: KindSide,
  channelId: string,
  ids: string[],
): Promise<KindReport> {
  const rows = await world.stored(channelId);
  const answered = ids.map((id) => side.answersTo(id));
  return {
    title: side.fixture.title,
    messages: ids.length,
    turns: new Set(rows.flatMap(({ runId }) => runId ?? [])).size,
    answers: answered.reduce((sum, found) => sum + found.length, 0),
    repeats: side.repeats,
    twice: answered.filter((found) => found.length > 1).length,
    wrong: ids.filter((id) => side.answersTo(id).some(({ text }) => !text.includes(numberedMark(id)))).length,
    strange: side.strange.length,
  };
}

/** Ids that no other test of the world uses. */
const idsFrom = (first: number, count: number) =>
  Array.from({ length: count }, (_, index) => String(first + index));

/** Each of so many messages of each kind, so many times at once; what the providers were asked to send. */
export async function stormOfKinds(
  world: KindWorld,
  sides: KindSide[],
  { messages, copies, settleMs }: { messages: number; copies: number; settleMs: number },
): Promise<KindReport[]> {
  const agentId = await world.agent('Counted');
  const ids = idsFrom(100, messages);
  const channels = await Promise.all(sides.map((side) => world.channel(agentId, side, everybody(side))));
  await Promise.all(
    sides.flatMap((side, index) =>
      ids.flatMap((id) =>
        Array.from({ length: copies }, () => world.deliverUntilTaken(side, channels[index]!, said(side, id))),
      ),
    ),
  );
  await world.settled(channels, settleMs);
  return Promise.all(sides.map((side, index) => report(world, side, channels[index]!, ids)));
}

export interface KindKillReport extends KindReport {
  /** Acknowledged before a kill, and neither answered without another delivery nor told to be in doubt. */
  lost: number;
  /** Without an answer in the end, though it is not in doubt whether there was one. */
  missing: number;
  /** Events that say that their answer may have been sent. */
  doubtful: number;
}

/**
 * Delivers messages of each kind once, and kills the service when one of the providers, each in its turn, has got an
 * answer of which nobody hears any more. What was acknowledged needs no other delivery; what was not is delivered again.
 */
export async function killAmidKinds(
  world: KindWorld,
  sides: KindSide[],
  { messages, seed, settleMs }: { messages: number; seed: number; settleMs: number },
): Promise<KindKillReport[]> {
  const random = seeded(seed);
  const agentId = await world.agent('Killed');
  const ids = idsFrom(100, messages);
  const channels = await Promise.all(sides.map((side) => world.channel(agentId, side, everybody(side))));
  const acknowledged = sides.map(() => new Set<string>());
  for (const [round, unlucky] of sides.entries()) {
    const part = ids.filter((_, index) => index % sides.length === round);
    const killAt = 1 + Math.floor(random() * (part.length - 1));
    const reached = Promise.withResolvers<void>();
    unlucky.onAnswer((count) => {
      if (count === killAt) reached.resolve();
      return count >= killAt;
    });
    const left = sides.flatMap((_, index) => part.map((id) => ({ index, id }))).values();
    const delivered = Promise.all(
      Array.from({ length: 8 }, async () => {
        for (const { index, id } of left) {
          const side = sides[index]!;
          const { status } = await world.deliver(side, channels[index]!, said(side, id));
          if (status !== null && status < 300) acknowledged[index]!.add(id);
        }
      }),
    );
    await reached.promise;
    await world.service.kill9();
    await delivered;
    unlucky.onAnswer(null);
    await world.restart();
  }
  await world.settled(channels, settleMs);
  const before = await Promise.all(
    sides.map((side, index) => unanswered(world, side, channels[index]!, ids)),
  );
  const lost = before.map(({ missing }, index) => missing.filter((id) => acknowledged[index]!.has(id)));
  await Promise.all(
    sides.flatMap((side, index) =>
      ids
        .filter((id) => !acknowledged[index]!.has(id))
        .map((id) => world.deliverUntilTaken(side, channels[index]!, said(side, id))),
    ),
  );
  await world.settled(channels, settleMs);
  return Promise.all(
    sides.map(async (side, index) => {
      const { missing, doubtful } = await unanswered(world, side, channels[index]!, ids);
      return {
        ...(await report(world, side, channels[index]!, ids)),
        lost: lost[index]!.length,
        missing: missing.length,
        doubtful,
      };
    }),
  );
}

/** Messages that the provider has no answer to, but for those whose events say that they may have one. */
async function unanswered(world: KindWorld, side: KindSide, channelId: string, ids: string[]) {
  const rows = await world.db().sql<{ replyTo: string }[]>`
    select reply_to::text as "replyTo" from inbound_events
    where channel_id = ${channelId} and state = 'failed' and reason like 'may_have_been_sent%'`;
  const isDoubtful = (id: string) => rows.some(({ replyTo }) => replyTo.includes(`"${side.api.to(id)}"`));
  const missing = ids.filter((id) => side.answersTo(id).length === 0 && !isDoubtful(id));
  return { missing, doubtful: rows.length };
}
