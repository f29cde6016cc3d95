import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { model, text } from './basics.ts';

const mediaType = z.string().describe('A media type, such as `application/pdf`.');
const name = text(1, limits.partNameChars, 'Its name.').nullable();

const data = z.strictObject({
  kind: z.literal('data'),
  data: z.unknown().describe('Any JSON.'),
  mediaType: mediaType.default('application/json'),
});
const file = z.strictObject({
  kind: z.literal('file'),
  name: name.default(null),
  mediaType: mediaType.default('application/octet-stream'),
  bytes: z.string().describe('The content in base64, with padding.'),
});
const link = z.strictObject({
  kind: z.literal('link'),
  name: name.default(null),
  mediaType: mediaType.nullable().default(null),
  url: text(1, limits.partUrlChars, 'An absolute URL. The service does not fetch it.'),
});

/** What a message may carry beside its text. */
export const PartSend = model(
  'PartSend',
  z.discriminatedUnion('kind', [data, file, link]),
  'What a message carries beside its text.',
);

export const messageParts = z.array(PartSend).max(limits.partsPerMessage);

const shown = z.object({
  kind: z.enum(['text', 'data', 'file', 'link']),
  text: z.string().optional().describe('Of a `text`.'),
  data: z.unknown().optional().describe('Of `data`: any JSON.'),
  name: z.string().nullable().optional().describe('Of a `file` or `link`.'),
  mediaType: z.string().nullable().optional(),
  bytes: z.string().optional().describe('Of a `file`: base64.'),
  url: z.string().optional().describe('Of a `link`.'),
});

export const Part = model(
  'Part',
  shown,
  'A piece of a message or an artifact; `kind` says which fields there are.',
);

export const Artifact = model(
  'Artifact',
  z.object({
    artifactId: z.string().describe("The agent's own id of it, unique in its run."),
    name: z.string().nullable(),
    description: z.string().nullable(),
    parts: z.array(Part),
  }),
  'What an agent made beside its answer.',
);
export const ArtifactList = model('ArtifactList', z.object({ artifacts: z.array(Artifact) }));
