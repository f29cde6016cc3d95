import { z } from 'zod';
import { notFound } from '../../domain/errors.ts';
import { invalidRequest, validate } from '../http/validate.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { innerId } from './ids.ts';
import type { Turn } from './transcript.ts';
import { contentOf, roleOf } from './transcript.ts';

const roles = ['system', 'developer', 'user', 'assistant'] as const;

const Item = z.looseObject({
  type: z.string().nullish(),
  role: z.enum(roles).nullish(),
  id: z.string().nullish(),
  content: z.unknown().optional(),
});

const Items = z.looseObject({ input: z.array(Item).min(1).max(10_000) });

/** What a client sent as input, and the run whose answer it goes on from, when it refers to one. */
export interface Input {
  turns: Turn[];
  afterRunId: string | null;
}

/** Throws for items that are no messages; a client's record of its model's reasoning is left aside. */
export function readInput(input: unknown): Input {
  if (typeof input === 'string')
    return { turns: [{ role: 'user', text: input, parts: [] }], afterRunId: null };
  const items = validate(Items, { input }, 'body').input;
  const turns: Turn[] = [];
  let afterRunId: string | null = null;
  for (const [index, item] of items.entries()) {
    const path = `input.${index}`;
    if (item.type === 'item_reference') {
      afterRunId = innerId('msg_', item.id ?? '');
      if (afterRunId === null) throw invalidRequest([{ path: `${path}.id`, message: 'is no item of here' }]);
      // The agent remembers all up to there.
      turns.length = 0;
    } else if (item.type === 'reasoning') continue;
    else if ((item.type ?? 'message') === 'message' && item.role) {
      turns.push({ role: roleOf(item.role), ...contentOf(item.content, `${path}.content`) });
    } else {
      throw invalidRequest([{ path, message: 'must be a message; the agent takes no other items' }]);
    }
  }
  return { turns, afterRunId };
}

/** A fork that ends with the answer of a run, so that a client can go on from any response that it has. */
export async function forkAfter(call: HostCall, runId: string, path: string): Promise<string> {
  const { services, caller } = call;
  const { run, message } = await services.runs.outcome(caller, runId, 0);
  if (message === null) {
    throw invalidRequest([{ path, message: 'has no answer to go on from, and more was said since' }]);
  }
  const fork = await services.forks.fork(caller, run.conversationId, { messageId: message.id });
  return fork.id;
}

/** The run of a response's id. Throws `not_found`. */
export function runOfResponse(id: string): string {
  const runId = innerId('resp_', id);
  if (runId === null) throw notFound();
  return runId;
}
