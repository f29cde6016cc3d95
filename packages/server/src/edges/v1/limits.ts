import { route } from '../http/route.ts';
import { LimitsAnswer } from '../schemas/limits.ts';

export const limitRoutes = [
  route({
    id: 'getLimits',
    method: 'get',
    path: '/v1/limits',
    tag: 'Limits',
    access: 'use',
    summary: "Get the key's rate limit",
    description: 'What the key may do in its window, and what is left. Asking counts as a request.',
    replies: {
      200: {
        description: 'The window.',
        schema: LimitsAnswer,
        example: {
          rateLimit: { quota: 600, windowSeconds: 60, used: 412, remaining: 188, resetSeconds: 42 },
        },
      },
    },
    async handler({ services, caller }) {
      const now = services.rateLimit.peek(caller.keyId, caller.rateLimit);
      const rateLimit = {
        quota: now.quota,
        windowSeconds: now.windowSeconds,
        used: now.quota - now.remaining,
        remaining: now.remaining,
        resetSeconds: now.resetSeconds,
      };
      return { status: 200 as const, body: { rateLimit } };
    },
  }),
];
