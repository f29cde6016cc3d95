import { z } from 'zod';
import { limits, modelPattern } from '../../domain/limits.ts';
import { model, name, nextCursor, text, time, uuid } from './basics.ts';

export const Agent = model(
  'Agent',
  z.object({
    id: uuid('Identifier of the agent.'),
    name: z.string().describe('Display name.'),
    url: z.string().describe("The agent's own address."),
    description: z.string().describe('Free text; may be empty.'),
    model: z.string().describe('`<provider>/<model_name>`'),
    gitUrl: z.string().describe('The repository that the agent is made of.'),
    deploymentId: z.string().nullable().meta({
      format: 'uuid',
      description: 'The active deployment; null until a first one is ready.',
    }),
    allowedOrigins: z
      .array(z.string())
      .describe('Origins of pages that may speak to the agent at its own address; `*` stands for all.'),
    createdAt: time('When it was created.'),
    updatedAt: time('When it was last changed.'),
  }),
  'A hosted agent: a git repository plus a model, with an address of its own.',
);

export const AgentAnswer = model('AgentAnswer', z.object({ agent: Agent }));
export const AgentPage = model('AgentPage', z.object({ agents: z.array(Agent), nextCursor }));
export const AgentArray = model('AgentArray', z.array(Agent));

const modelName = z
  .string()
  .max(300)
  .regex(modelPattern, 'must be <provider>/<model_name>, such as anthropic/claude-sonnet-4-5')
  .describe('`<provider>/<model_name>`. The installation has a default.');
const gitUrl = z
  .string()
  .max(limits.gitUrlChars)
  .describe('An https URL of a git repository. Without it the service makes one and holds it itself.');
const description = text(0, limits.descriptionChars, `Up to ${limits.descriptionChars} characters.`);

export const AgentCreate = model(
  'AgentCreate',
  z.strictObject({
    name: name(),
    description: description.optional(),
    model: modelName.optional(),
    gitUrl: gitUrl.optional(),
  }),
);

export const AgentUpdate = model(
  'AgentUpdate',
  z.strictObject({
    name: name().optional(),
    description: description.optional(),
    model: modelName.optional(),
    gitUrl: gitUrl.optional(),
    allowedOrigins: z
      .array(z.string().max(300))
      .max(limits.allowedOrigins)
      .describe(
        `Up to ${limits.allowedOrigins} origins of pages, such as https://app.example.com, that may speak to the agent at its own address; \`*\` allows all.`,
      )
      .optional(),
  }),
  'Only the fields that are given change.',
);
