import { messageOf } from './script.ts';
import type { Script } from './script.ts';
import type { World } from './world.ts';

export interface Load {
  script: Script;
  messages: number;
  /** Each with one message at a time. */
  conversations: number;
  isStreamed: boolean;
}

export interface LoadResult {
  perSecond: number;
  /** One entry a message. */
  totalMs: number[];
  /** Streamed ones only. */
  firstMs: number[];
}

/** A conversation gets so many turns, then the next one begins: what is measured is not a long conversation. */
const TURNS = 20;

/** To whom they are sent. */
export type Target = Pick<World, 'client' | 'agentId'>;

/** Sends messages over a fixed number of conversations. Rejects when one is not answered whole. */
export async function runLoad(target: Target, load: Load): Promise<LoadResult> {
  const result: LoadResult = { perSecond: 0, totalMs: [], firstMs: [] };
  const content = messageOf(load.script);
  let left = load.messages;
  const converse = async () => {
    let conversationId: string | null = null;
    for (let turn = 0; left > 0; turn += 1) {
      left -= 1;
      if (turn % TURNS === 0) conversationId = null;
      conversationId = await exchange(target, load, conversationId, content, result);
    }
  };
  const startMs = performance.now();
  await Promise.all(Array.from({ length: load.conversations }, converse));
  result.perSecond = load.messages / ((performance.now() - startMs) / 1000);
  return result;
}

async function exchange(
  target: Target,
  load: Load,
  conversationId: string | null,
  content: string,
  result: LoadResult,
): Promise<string> {
  const { client, agentId } = target;
  if (!load.isStreamed) {
    const answer = await client.send(agentId, conversationId, content);
    result.totalMs.push(answer.totalMs);
    return answer.conversationId;
  }
  const answer = await client.stream(agentId, conversationId, content);
  if (answer.status !== 'run.completed') throw new Error(`A streamed run ended with "${answer.status}".`);
  result.totalMs.push(answer.totalMs);
  result.firstMs.push(answer.firstMs);
  return answer.conversationId;
}
