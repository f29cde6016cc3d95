import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { deliveryStates, webhookEventTypes } from '../../domain/webhook-endpoint.ts';
import { model, name, nextCursor, pageFields, text, time, uuid } from './basics.ts';

const url = text(
  1,
  2_048,
  'Where events are posted. https, unless the host is on a network that the operator has opened.',
);
const events = z
  .array(z.enum(['*', ...webhookEventTypes]))
  .describe('Which events it is told of; `*` is all of them.');
const agentId = z.string().nullable().describe('Only events of this agent; null: of all.');

export const WebhookEndpoint = model(
  'WebhookEndpoint',
  z.object({
    id: uuid('Identifier of the endpoint.'),
    name: z.string().describe('What you called it.'),
    url: z.string(),
    events,
    agentId,
    status: z.enum(['enabled', 'disabled']),
    disabledReason: z
      .enum(['failing', 'gone'])
      .nullable()
      .describe(
        `Why the service disabled it: nothing was taken for ${limits.webhookFailingDays} days, or it answered 410.`,
      ),
    failingSince: time('When attempts began to fail; null: the last one did not.').nullable(),
    lastSuccessAt: time('When an event was last taken, to within some seconds.').nullable(),
    createdAt: time('When it was made.'),
    updatedAt: time('When it was last changed.'),
  }),
  'Where the organisation is told of what happens.',
);
export const WebhookEndpointAnswer = model('WebhookEndpointAnswer', z.object({ endpoint: WebhookEndpoint }));
export const WebhookEndpointWithSecret = model(
  'WebhookEndpointWithSecret',
  z.object({
    endpoint: WebhookEndpoint,
    secret: z.string().describe('What its events are signed with (Standard Webhooks): shown this once.'),
  }),
);
export const WebhookEndpointPage = model(
  'WebhookEndpointPage',
  z.object({ endpoints: z.array(WebhookEndpoint), nextCursor }),
);

export const WebhookEndpointCreate = model(
  'WebhookEndpointCreate',
  z.strictObject({ url, events, name: name().optional(), agentId: agentId.optional() }),
);
export const WebhookEndpointUpdate = model(
  'WebhookEndpointUpdate',
  z.strictObject({
    url: url.optional(),
    events: events.optional(),
    name: name().optional(),
    agentId: agentId.optional(),
  }),
);
export const WebhookRetrySend = model(
  'WebhookRetrySend',
  z.strictObject({
    since: z.iso.datetime({ offset: true }).describe('Of the oldest event, ISO 8601.'),
  }),
);
export const WebhookRetried = model(
  'WebhookRetried',
  z.object({ retried: z.int().describe('How many deliveries are sent again.') }),
);

export const deliveryQuery = z.strictObject({
  ...pageFields,
  state: z.enum(deliveryStates).optional().describe('Only those in this state.'),
});

export const WebhookDelivery = model(
  'WebhookDelivery',
  z.object({
    id: uuid('Identifier of the delivery: its header `webhook-id`, the same in every attempt.'),
    endpointId: uuid('The endpoint.'),
    type: z.string().describe('The type of its event.'),
    at: time('When it happened.'),
    agentId: uuid('The agent that it is about.').nullable(),
    conversationId: uuid('The conversation that it is about.').nullable(),
    runId: uuid('The run that it is about.').nullable(),
    seq: z.int().nullable().describe('Of the event in its conversation.'),
    state: z.enum(deliveryStates).describe('`failed`: no attempt was taken, and none follows by itself.'),
    attempts: z.int().describe('How many there were.'),
    nextAttemptAt: time(
      'When the next one is due; null: there is none, or the endpoint is disabled.',
    ).nullable(),
    lastStatus: z.int().nullable().describe('What the receiver answered last.'),
    lastError: z.string().nullable().describe('What was wrong with the last attempt, in words.'),
    endedAt: time('When it was taken, or given up.').nullable(),
  }),
  'An event on its way to an endpoint.',
);
export const WebhookDeliveryAnswer = model('WebhookDeliveryAnswer', z.object({ delivery: WebhookDelivery }));
export const WebhookDeliveryPage = model(
  'WebhookDeliveryPage',
  z.object({ deliveries: z.array(WebhookDelivery), nextCursor }),
);
export const WebhookAttempt = model(
  'WebhookAttempt',
  z.object({
    number: z.int().describe('Counts from 1.'),
    at: time('When it began.'),
    latencyMs: z.int().describe('Until the answer, or until it was given up.'),
    status: z.int().nullable().describe('What the receiver answered; null: nothing.'),
    error: z.string().nullable().describe('What was wrong, in words; null: it was taken.'),
    answer: z
      .string()
      .nullable()
      .describe(`The first ${limits.webhookAnswerBytes} bytes of the answer's body.`),
  }),
  'One try to deliver an event.',
);
export const WebhookDeliveryDetail = model(
  'WebhookDeliveryDetail',
  z.object({ delivery: WebhookDelivery, attempts: z.array(WebhookAttempt).describe('Oldest first.') }),
);

const id = '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be8b2';
export const endpointExample = {
  id,
  name: 'Our own system',
  url: 'https://hooks.example.com/berth',
  events: ['run.completed' as const, 'run.failed' as const],
  agentId: null,
  status: 'enabled' as const,
  disabledReason: null,
  failingSince: null,
  lastSuccessAt: '2026-11-28T09:30:00.000Z',
  createdAt: '2026-11-28T09:00:00.000Z',
  updatedAt: '2026-11-28T09:00:00.000Z',
};
export const deliveryExample = {
  id: '0197c2b4-7000-7c2a-9d51-3f0a1c9be8b3',
  endpointId: id,
  type: 'run.completed',
  at: '2026-11-28T09:30:00.000Z',
  agentId: '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be841',
  conversationId: '0197c2b4-7001-7c2a-9d51-3f0a1c9be842',
  runId: '0197c2b4-7002-7c2a-9d51-3f0a1c9be842',
  seq: 9,
  state: 'delivered' as const,
  attempts: 1,
  nextAttemptAt: null,
  lastStatus: 200,
  lastError: null,
  endedAt: '2026-11-28T09:30:00.211Z',
};
export const attemptExample = {
  number: 1,
  at: '2026-11-28T09:30:00.100Z',
  latencyMs: 111,
  status: 200,
  error: null,
  answer: '',
};
