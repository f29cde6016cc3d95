import { z } from 'zod';
import { model, uuid } from './basics.ts';
import { binding, scope } from './key.ts';

export const LimitsAnswer = model(
  'LimitsAnswer',
  z.object({
    key: z.object({
      id: uuid('The key that asks.'),
      scope,
      binding,
      agentId: z
        .string()
        .nullable()
        .meta({ format: 'uuid', description: 'The agent of an agent-bound key.' }),
    }),
    rateLimit: z.object({
      quota: z.number().int().describe('Requests that the key may make in one window.'),
      windowSeconds: z.number().int(),
      used: z.number().int().describe('Of the quota; this request is among them.'),
      remaining: z.number().int(),
      resetSeconds: z.number().int().describe('Until the quota is whole again.'),
    }),
  }),
);
