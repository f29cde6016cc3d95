import { z } from 'zod';
import { model } from './basics.ts';

export const LimitsAnswer = model(
  'LimitsAnswer',
  z.object({
    rateLimit: z.object({
      quota: z.number().int().describe('Requests that the key may make in one window.'),
      windowSeconds: z.number().int(),
      used: z.number().int().describe('Of the quota; this request is among them.'),
      remaining: z.number().int(),
      resetSeconds: z.number().int().describe('Until the quota is whole again.'),
    }),
  }),
);
