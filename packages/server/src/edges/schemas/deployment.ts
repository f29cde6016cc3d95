import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { model, nextCursor, text, time, uuid } from './basics.ts';

export const Deployment = model(
  'Deployment',
  z.object({
    id: uuid('Identifier of the deployment.'),
    agentId: uuid('The agent.'),
    commit: z.string().nullable().describe('The commit, 40 hex digits; null until the ref is resolved.'),
    ref: z.string().describe('The branch, tag or commit that was asked for.'),
    source: z.enum(['create', 'push', 'fetch', 'activate']).describe('What made it.'),
    status: z.enum(['pending', 'ready', 'failed']),
    error: z.string().nullable().describe('Why it failed, in words for whoever deploys.'),
    createdAt: time('When it was made.'),
    activatedAt: z
      .string()
      .nullable()
      .meta({ format: 'date-time', description: 'When it was last made the active one; null when never.' }),
  }),
  'One version of an agent: a commit of its repository. New turns run on the active one.',
);

export const DeploymentAnswer = model('DeploymentAnswer', z.object({ deployment: Deployment }));
export const DeploymentPage = model(
  'DeploymentPage',
  z.object({ deployments: z.array(Deployment), nextCursor }),
);
export const DeploymentCreate = model(
  'DeploymentCreate',
  z.strictObject({
    ref: text(
      1,
      limits.refChars,
      'A branch, a tag or a commit; the default branch when left out.',
    ).optional(),
  }),
);
