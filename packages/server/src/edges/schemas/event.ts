import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { invalidRequest } from '../http/validate.ts';
import { model, nextCursor, pageFields, time } from './basics.ts';

export const Event = model(
  'Event',
  z.object({
    seq: z.number().int().describe('Counts from 1 inside its conversation, without a gap.'),
    type: z
      .string()
      .describe(
        'One of `run.queued`, `run.started`, `run.awaiting_input`, `run.resumed`, `run.retrying`, `run.completed`, `run.failed`, `run.cancelled`, `message.created`, `message.delta`, `thought.delta`, `tool.started`, `tool.updated`, `tool.finished`, `permission.requested`, `permission.resolved`, `input.requested`, `input.resolved`, `artifact.updated`, `plan.updated`, `usage.recorded`. More may be added: ignore what you do not know.',
      ),
    at: time('When it happened.'),
    data: z.record(z.string(), z.unknown()).describe('Depends on the type; `runId` is always in it.'),
  }),
  'Something that happened in a conversation. Everything that a viewer sees can be derived from these.',
);

export const EventPage = model(
  'EventPage',
  z.object({
    events: z.array(Event),
    nextCursor,
    hasMore: z.boolean().describe('Whether there are more events in the direction that was read.'),
  }),
);

/** A seq to go on after. */
export function readSeq(field: string, value: string): number {
  if (/^\d{1,15}$/.test(value)) return Number(value);
  throw invalidRequest([{ path: field, message: 'must be the seq of an event: a whole number, 0 or more' }]);
}

export const eventQuery = z.strictObject({
  ...pageFields,
  after: z
    .string()
    .regex(/^\d{1,15}$/, 'must be the seq of an event: a whole number, 0 or more')
    .optional()
    .transform((value) => (value === undefined ? null : Number(value)))
    .meta({
      type: 'integer',
      minimum: 0,
      description: `Read oldest first, from the event after this seq. In a stream, where to begin; at most ${limits.pageMax} events a page otherwise.`,
    }),
});
