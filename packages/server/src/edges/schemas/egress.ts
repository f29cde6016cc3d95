import { z } from 'zod';
import { egressModes, egressReasons } from '../../domain/egress-policy.ts';
import { egressPresets } from '../../domain/egress-presets.ts';
import { limits } from '../../domain/limits.ts';
import { model, nextCursor, time } from './basics.ts';

const mode = z
  .enum(egressModes)
  .describe(
    '`none`: nothing is reached. `list`: what `allow` and `presets` name. `open`: every public host. ' +
      'In every mode `deny` wins, and private, loopback, link-local and metadata addresses are not reached.',
  );
const ruleForm =
  '`<host>[:<port>][/tcp]`: `registry.example` (ports 80 and 443), `registry.example:8443`, `registry.example:*`, ' +
  '`*.example.org` (names below it), `203.0.113.7:443`, `[2001:db8::7]:443`, `203.0.113.0/24`. ' +
  '`/tcp` lets any protocol pass unread; without it only TLS that names the host, and HTTP, do.';
const allow = z.array(z.string().max(300)).describe(`Rules: ${ruleForm} At most ${limits.egressRules}.`);
const deny = z
  .array(z.string().max(300))
  .describe(
    'Rules of the same form; one without a port means every port. ' +
      `At most ${limits.egressRules}. Addresses hold for what names resolve to, too.`,
  );
const presetLines = Object.entries(egressPresets).map(([name, { title }]) => `\`${name}\` (${title})`);
const presets = z
  .array(z.string().max(50))
  .describe(`Hosts of well-known registries by name: ${presetLines.join(', ')}.`);
const transparent = z
  .boolean()
  .describe(
    'Lead programs that know no proxy to it as well, from the next start of the sandbox on. ' +
      'Needs a host that can (`transparentPossible`).',
  );

export const Egress = model(
  'Egress',
  z.object({
    mode,
    allow,
    deny,
    presets,
    transparent,
    transparentPossible: z.boolean().describe('Whether `transparent` has an effect on this host.'),
    isDefault: z.boolean().describe("Nothing was set for this agent: it is the installation's default."),
    updatedAt: z
      .string()
      .nullable()
      .meta({ format: 'date-time', description: 'When it was set; null when never.' }),
  }),
  'What an agent may reach on the network.',
);

export const EgressAnswer = model('EgressAnswer', z.object({ egress: Egress }));

export const EgressPut = model(
  'EgressPut',
  z.strictObject({
    mode,
    allow: allow.optional(),
    deny: deny.optional(),
    presets: presets.optional(),
    transparent: transparent.optional(),
  }),
);

export const EgressRefusal = model(
  'EgressRefusal',
  z.object({
    host: z.string().describe('What was asked for; empty when it could not be read.'),
    port: z.int().describe('0 when it could not be read.'),
    reason: z.enum(egressReasons).describe('Also told to the program inside, in `X-Berth-Egress-Error`.'),
    message: z.string().describe('The reason as a sentence.'),
    count: z.number().describe('How often.'),
    firstAt: time('When it was first refused.'),
    lastAt: time('When it was last refused.'),
    remedy: z
      .string()
      .nullable()
      .describe('A command that lets it through, or shows why not; null when none does.'),
  }),
  'Connections of one kind that did not go out.',
);

export const EgressRefusalPage = model(
  'EgressRefusalPage',
  z.object({ refusals: z.array(EgressRefusal), nextCursor }),
);

export const EgressTraffic = model(
  'EgressTraffic',
  z.object({
    since: z.string().meta({ format: 'date', description: 'The first day (UTC) that is counted.' }),
    hosts: z
      .array(
        z.object({
          host: z.string(),
          sentBytes: z.number().describe('Out of the sandbox.'),
          receivedBytes: z.number().describe('Into the sandbox.'),
          connections: z.number(),
        }),
      )
      .describe('The hosts with the most bytes, most first.'),
  }),
);
