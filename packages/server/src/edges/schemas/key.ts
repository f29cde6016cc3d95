import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { secretKinds } from '../../domain/nouns.ts';
import { model, name, nextCursor, time, uuid } from './basics.ts';

export const scope = z
  .enum(['use', 'edit'])
  .describe('`use`: read and converse. `edit`: also change. Fixed at creation.');
export const binding = z
  .enum(['agent-bound', 'org-bound'])
  .describe('`agent-bound`: one agent only. `org-bound`: the whole organisation. Fixed at creation.');

export const ApiKey = model(
  'ApiKey',
  z.object({
    id: uuid('Identifier of the key.'),
    name: z.string().describe('Name of the key.'),
    prefix: z.string().describe('The first characters of the key, enough to tell keys apart.'),
    scope,
    binding,
    agentId: z.string().nullable().meta({
      format: 'uuid',
      description: 'The agent that the key is bound to; null for an org-bound key.',
    }),
    lastUsedAt: z.string().nullable().meta({
      format: 'date-time',
      description: 'When it was last used, within a minute; null when never.',
    }),
    expiresAt: z.string().nullable().meta({
      format: 'date-time',
      description: 'When it stops working; null when it does not.',
    }),
    createdAt: time('When it was created.'),
  }),
  'An API key, without its value.',
);

export const ApiKeyPage = model('ApiKeyPage', z.object({ keys: z.array(ApiKey), nextCursor }));
export const ApiKeyMinted = model(
  'ApiKeyMinted',
  z.object({
    key: ApiKey,
    value: z.string().describe('The whole key. It is told this once and never again.'),
  }),
);

export const AgentKeyCreate = model('AgentKeyCreate', z.strictObject({ name: name() }));

export const ApiKeyCreate = model(
  'ApiKeyCreate',
  z.strictObject({
    name: name(),
    scope,
    binding,
    agentId: z
      .string()
      .optional()
      .meta({ format: 'uuid', description: 'The agent of an `agent-bound` key; not for others.' }),
    expiresAt: z.iso
      .datetime({ offset: true, error: 'must be an ISO 8601 time, such as 2027-01-31T12:00:00.000Z' })
      .optional()
      .meta({ description: 'When the key shall stop working, in the future.' }),
  }),
);

export const SecretName = model(
  'SecretName',
  z.object({
    key: z.string().describe('Name of the secret: an environment variable in the sandbox.'),
    kind: z
      .enum(secretKinds)
      .describe(
        '`env`: the value is in the environment of the sandbox, and the agent can read it. `brokered`: the sandbox ' +
          'holds a placeholder, and the value goes into requests to `hosts` only. `withheld`: the service itself uses ' +
          'it (keys of model providers, GIT_TOKEN), and nothing of it is in the sandbox.',
      ),
    hosts: z
      .array(z.string())
      .describe(
        'The hosts that a brokered value is sent to, on port 443 or the one that is given; else empty.',
      ),
    updatedAt: time('When its value was last set.'),
  }),
  'A secret of an agent, without its value: that is never returned.',
);
export const SecretPage = model('SecretPage', z.object({ secrets: z.array(SecretName), nextCursor }));

export const SecretPut = model(
  'SecretPut',
  z.strictObject({
    value: z
      .string()
      .refine((value) => Buffer.byteLength(value) <= limits.secretValueBytes, {
        error: `must have at most ${limits.secretValueBytes} bytes`,
      })
      .describe('The value, up to 64 KiB. Setting a new one replaces the old.'),
    hosts: z
      .array(z.string().min(1).max(259))
      .max(limits.secretHosts)
      .optional()
      .describe(
        'Broker the secret: the sandbox holds a placeholder, and the value is put into the headers of https requests ' +
          'to these hosts only, such as `api.example.com`, `*.example.com` or `git.example.com:8443`. The value must ' +
          `then be one line of ${limits.brokeredValueMinBytes} to ${limits.brokeredValueMaxBytes} bytes. Left out, ` +
          'the hosts stay as they are: none for a new secret. With an empty list the agent can read the value.',
      ),
  }),
);
