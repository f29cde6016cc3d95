import { writeRateLimit } from '../http/gate.ts';
import { route } from '../http/route.ts';
import * as example from '../schemas/examples.ts';
import { LimitsAnswer } from '../schemas/limits.ts';

export const limitRoutes = [
  route({
    id: 'getLimits',
    method: 'get',
    path: '/v1/limits',
    tag: 'Limits',
    access: 'use',
    summary: "Get the key's rights and rate limit",
    description: 'What the key may do, and what of its rate limit is left. Asking counts as a request.',
    replies: {
      200: {
        description: 'The key and its window.',
        schema: LimitsAnswer,
        example: {
          key: {
            id: example.ids.keyId,
            scope: 'use',
            binding: 'agent-bound',
            agentId: example.ids.agentId,
          },
          rateLimit: { quota: 600, windowSeconds: 60, used: 412, remaining: 188, resetSeconds: 42 },
        },
      },
    },
    async handler({ services, caller, head }) {
      const now = services.rateLimit.peek(caller.keyId, caller.rateLimit);
      // The window has gone on since the request was counted, and header and body are to say the same.
      writeRateLimit(head, now);
      const rateLimit = {
        quota: now.quota,
        windowSeconds: now.windowSeconds,
        used: now.quota - now.remaining,
        remaining: now.remaining,
        resetSeconds: now.resetSeconds,
      };
      const { keyId: id, scope, binding, agentId } = caller;
      return { status: 200 as const, body: { key: { id, scope, binding, agentId }, rateLimit } };
    },
  }),
];
