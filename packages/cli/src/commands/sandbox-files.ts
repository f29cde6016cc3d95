import { spawn } from 'node:child_process';
import { accessSync, constants, createReadStream, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { BerthError, everyItem } from '@berth/sdk';
import { UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printTable } from '../print.ts';

interface Remote {
  agent: string;
  path: string;
}

/** `<agent>:<path>`, as with scp; what has a slash before its colon is a local path. */
export function readRemote(text: string): Remote | null {
  const match = /^([^:/]+):(.*)$/.exec(text);
  return match ? { agent: match[1]!, path: match[2]! } : null;
}

const last = (path: string): string => basename(path.replace(/\/+$/, ''));

function isLocalFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

async function download(context: Context, remote: Remote, local: string): Promise<void> {
  const agent = await findAgent(context, remote.agent);
  const { files } = context.client.sandboxes;
  if (await files.isFolder(agent.id, remote.path)) {
    const response = await files.archive(agent.id, remote.path, context.signal);
    mkdirSync(local, { recursive: true });
    return tar(['-C', local, '--no-same-owner', '-xf', '-'], bytesOf(response));
  }
  const target = isLocalFolder(local) ? join(local, last(remote.path)) : local;
  const response = await files.read(agent.id, remote.path, context.signal);
  const part = `${target}.part`;
  try {
    // Opened first: an opening that is under way when the download breaks off would make the file again.
    const file = await open(part, 'w');
    await pipeline(bytesOf(response), file.createWriteStream());
    renameSync(part, target);
  } finally {
    rmSync(part, { force: true });
  }
}

/** What goes wrong after the first byte has no answer of its own: the connection breaks off. */
async function* bytesOf(response: Response): AsyncGenerator<Uint8Array> {
  try {
    yield* response.body as unknown as AsyncIterable<Uint8Array>;
  } catch (cause) {
    throw new BerthError('The download broke off.', { status: 0, cause });
  }
}

async function upload(context: Context, local: string, remote: Remote): Promise<void> {
  const agent = await findAgent(context, remote.agent);
  const { files } = context.client.sandboxes;
  const stats = statSync(local, { throwIfNoEntry: false });
  if (!stats) throw new UsageError(`there is no "${local}" here`);
  if (stats.isDirectory()) {
    const child = spawn('tar', ['-C', local, '-cf', '-', '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const failed = new Promise<never>((_, reject) =>
      child.once('error', () => reject(new UsageError('tar is not installed'))),
    );
    const sent = files.unpack(agent.id, remote.path, Readable.toWeb(child.stdout) as never, context.signal);
    const done = await Promise.race([sent, failed]);
    context.note(`${done.unpacked?.entries ?? 0} files and folders\n`);
    return;
  }
  const asFolder = remote.path === '' || remote.path.endsWith('/');
  const path = asFolder ? `${remote.path}${last(local)}` : remote.path;
  const mode = (stats.mode & 0o777).toString(8).padStart(3, '0');
  // Looked at first: one that may not be read is no fault of the connection.
  accessSync(local, constants.R_OK);
  const bytes = Readable.toWeb(createReadStream(local)) as never;
  await files.write(agent.id, path, bytes, { mode, signal: context.signal });
}

function tar(args: string[], input: AsyncIterable<Uint8Array>): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('tar', args, { stdio: ['pipe', 'inherit', 'inherit'] });
    child.once('error', () => reject(new UsageError('tar is not installed')));
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new UsageError(`tar ended with ${code}`)),
    );
    pipeline(input, child.stdin).catch(reject);
  });
}

export const sandboxFileCommands: Command[] = [
  {
    name: 'sandbox ls',
    usage: '<agent> [path]',
    summary: 'List a folder of a sandbox; /workspace without a path',
    positionals: [1, 2],
    async run(context, [nameOrId, path = '']) {
      const agent = await findAgent(context, nameOrId!);
      const files = await Array.fromAsync(
        everyItem((query) => context.client.sandboxes.files.list(agent.id, path, query)),
      );
      printTable(
        context,
        files,
        ['mode', 'size', 'modified', 'name'],
        files.map((file) => {
          const mark = file.type === 'folder' ? '/' : file.type === 'link' ? ` -> ${file.target ?? '?'}` : '';
          return [file.mode, file.sizeBytes, file.modifiedAt, `${file.name}${mark}`];
        }),
      );
    },
  },
  {
    name: 'sandbox cp',
    usage: '<from> <to>   (one of them is <agent>:<path>)',
    summary: 'Copy a file or folder from or into a sandbox',
    positionals: [2, 2],
    async run(context, [from, to]) {
      const [source, target] = [readRemote(from!), readRemote(to!)];
      if (source && !target) await download(context, source, to!);
      else if (target && !source) await upload(context, from!, target);
      else throw new UsageError('one of the two is <agent>:<path>, the other a path here');
    },
  },
  {
    name: 'sandbox rm',
    usage: '<agent> <path> [-r]',
    summary: 'Delete a file or folder of a sandbox',
    options: { recursive: { type: 'boolean', short: 'r' } },
    positionals: [2, 2],
    async run(context, [nameOrId, path], values) {
      const agent = await findAgent(context, nameOrId!);
      try {
        await context.client.sandboxes.files.remove(agent.id, path!, values['recursive'] === true);
      } catch (error) {
        // The service names its query parameter, which is not what is typed here.
        if (!(error instanceof BerthError && error.message.includes('recursive=true'))) throw error;
        throw new UsageError('The folder is not empty; add -r to delete it with all that is in it.');
      }
      context.note(`deleted ${path}\n`);
    },
  },
];
