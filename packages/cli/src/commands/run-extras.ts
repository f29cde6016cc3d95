import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Artifact, Part } from '@berth/sdk';
import { text, UsageError, type Command, type Context } from '../command.ts';
import { printOne, printTable, safe } from '../print.ts';

/** What is asked of callers while a run waits, and what runs make beside their answer. */
export const runExtraCommands: Command[] = [
  {
    name: 'runs respond',
    usage: '<run id> <request id> [text] [--option ID] [--decline]',
    summary: 'Answer what a run asks: a text to an input, an option to a permission',
    options: { option: { type: 'string' }, decline: { type: 'boolean' } },
    positionals: [2, 3],
    async run(context, [runId, requestId, content], values) {
      const optionId = text(values, 'option');
      const given = [content, optionId, values['decline'] === true ? true : undefined];
      if (given.filter((value) => value !== undefined).length !== 1) {
        throw new UsageError('give one of: a text, --option ID, --decline');
      }
      const answer =
        optionId === undefined
          ? { requestId: requestId!, content: content ?? null }
          : { requestId: requestId!, optionId };
      const run = await context.client.runs.respond(runId!, answer);
      printOne(context, run, [
        ['id', run.id],
        ['status', run.status],
      ]);
    },
  },
  {
    name: 'runs artifacts',
    usage: '<run id> [--to FOLDER]',
    summary: 'List what a run has made, or write it into a folder',
    options: { to: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [runId], values) {
      const artifacts = await context.client.runs.artifacts(runId!);
      const folder = text(values, 'to');
      if (folder !== undefined) return writeAll(context, artifacts, folder);
      printTable(
        context,
        artifacts,
        ['id', 'name', 'parts'],
        artifacts.map(({ artifactId, name, parts }) => [artifactId, name, parts.map(partNote).join(', ')]),
      );
    },
  },
];

function partNote({ kind, name, mediaType, url }: Part): string {
  return kind === 'link' ? `link ${url}` : [kind, name, mediaType].filter(Boolean).join(' ');
}

/** Never over a file that is there, and under no name that leads out of the folder: names come from the agent. */
async function writeAll(context: Context, artifacts: Artifact[], folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const { artifactId, name, parts } of artifacts) {
    for (const [index, part] of parts.entries()) {
      const bytes = bytesOf(part);
      if (bytes === null) continue;
      const own = part.name ?? name ?? `${artifactId}${index === 0 ? '' : `-${index}`}${ending(part)}`;
      const path = join(folder, fileName(own));
      await writeFile(path, bytes, { flag: 'wx' });
      context.out(`${safe(path)}\n`);
    }
  }
}

function bytesOf({ kind, text: said, data, bytes }: Part): Buffer | null {
  if (kind === 'file') return Buffer.from(bytes ?? '', 'base64');
  if (kind === 'text') return Buffer.from(said ?? '');
  return kind === 'data' ? Buffer.from(`${JSON.stringify(data, null, 2)}\n`) : null;
}

const ending = ({ kind }: Part): string => (kind === 'text' ? '.txt' : kind === 'data' ? '.json' : '');

function fileName(name: string): string {
  // oxlint-disable-next-line no-control-regex
  const plain = name.replaceAll(/[/\\\u0000-\u001f\u007f:]/g, '_').slice(0, 200);
  return plain === '' || plain === '.' || plain === '..' ? `_${plain}` : plain;
}
