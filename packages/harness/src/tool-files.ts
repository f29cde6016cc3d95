import { mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { capText } from './output.ts';
import { oneLine, optionalNumber, text, ToolError } from './tool.ts';
import type { Tool, ToolContext, ToolOutcome } from './tool.ts';

const maxFileBytes = 10 * 1024 * 1024;
const maxReadChars = 48 * 1024;
const defaultLines = 2000;
const path = { type: 'string', description: 'Path of the file, from the workspace or absolute.' };

export const readTool: Tool = {
  kind: 'read',
  title: (input) => `Read ${oneLine(input['path'])}`,
  run: read,
  definition: {
    name: 'read',
    description:
      'Read a text file, or list a directory. Long files come in parts: give the first line as offset.',
    parameters: {
      type: 'object',
      properties: {
        path,
        offset: { type: 'number', description: 'First line, counted from 1.' },
        limit: { type: 'number', description: `Lines to read; ${defaultLines} when absent.` },
      },
      required: ['path'],
    },
  },
};

export const writeTool: Tool = {
  kind: 'edit',
  title: (input) => `Write ${oneLine(input['path'])}`,
  run: write,
  definition: {
    name: 'write',
    description: 'Write a whole file; its directories are made. An existing file is replaced.',
    parameters: {
      type: 'object',
      properties: { path, content: { type: 'string', description: 'All of the file.' } },
      required: ['path', 'content'],
    },
  },
};

export const editTool: Tool = {
  kind: 'edit',
  title: (input) => `Edit ${oneLine(input['path'])}`,
  run: edit,
  definition: {
    name: 'edit',
    description:
      'Replace a piece of a file. The old text must match exactly, white space included, and be found once; ' +
      'add lines around it to make it unique, or set all.',
    parameters: {
      type: 'object',
      properties: {
        path,
        old: { type: 'string', description: 'The text to replace.' },
        new: { type: 'string', description: 'The text in its place.' },
        all: { type: 'boolean', description: 'Replace every occurrence.' },
      },
      required: ['path', 'old', 'new'],
    },
  },
};

async function read(input: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
  const name = text(input, 'path');
  const file = resolve(context.cwd, name);
  const offset = Math.floor(optionalNumber(input, 'offset', 1, 1e9) ?? 1);
  const limit = Math.floor(optionalNumber(input, 'limit', 1, 1e6) ?? defaultLines);
  const kind = await stat(file).catch(explain(name));
  if (kind.isDirectory()) return { text: await list(file), isError: false };
  const bytes = await contents(file, name);
  if (bytes.subarray(0, 8000).includes(0))
    throw new ToolError(`${name} is a binary file of ${bytes.length} bytes.`);
  const lines = bytes.toString('utf8').split('\n');
  if (lines.at(-1) === '') lines.pop();
  if (offset > Math.max(1, lines.length)) throw new ToolError(`${name} has ${lines.length} lines only.`);
  const part = lines.slice(offset - 1, offset - 1 + limit);
  const last = offset - 1 + part.length;
  const shown = capText(part.join('\n'), maxReadChars);
  const isWhole = offset === 1 && last >= lines.length;
  return {
    text: isWhole ? shown : `${shown}\n[lines ${offset} to ${last} of ${lines.length}]`,
    isError: false,
  };
}

async function list(directory: string): Promise<string> {
  const entries = await readdir(directory, { withFileTypes: true });
  const names = entries.map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name)).sort();
  return names.length === 0 ? '(empty directory)' : capText(names.join('\n'), maxReadChars);
}

async function write(input: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
  const name = text(input, 'path');
  const content = text(input, 'content');
  await alone(async () => {
    const file = resolve(context.cwd, name);
    await mkdir(dirname(file), { recursive: true }).catch(explain(name));
    await replace(file, content).catch(explain(name));
  });
  return { text: `Wrote ${Buffer.byteLength(content)} bytes to ${name}.`, isError: false };
}

async function edit(input: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
  const name = text(input, 'path');
  const [before, after] = [text(input, 'old'), text(input, 'new')];
  if (before === '') throw new ToolError('"old" is empty; use the write tool for a whole file.');
  return alone(async () => {
    const file = resolve(context.cwd, name);
    const content = (await contents(file, name)).toString('utf8');
    const pieces = content.split(before);
    const found = pieces.length - 1;
    if (found === 0)
      throw new ToolError(`"old" was not found in ${name}. Read the file and copy the text exactly.`);
    if (found > 1 && input['all'] !== true) {
      throw new ToolError(`"old" was found ${found} times in ${name}. Add lines around it, or set "all".`);
    }
    await replace(file, pieces.join(after)).catch(explain(name));
    return { text: `Replaced ${found} ${found === 1 ? 'piece' : 'pieces'} in ${name}.`, isError: false };
  });
}

async function contents(file: string, name: string): Promise<Buffer> {
  // Opening a pipe or a device could wait for ever, so its kind is asked first.
  const kind = await stat(file).catch(explain(name));
  if (kind.isDirectory()) throw new ToolError(`${name} is a directory.`);
  if (!kind.isFile()) throw new ToolError(`${name} is no regular file.`);
  if (kind.size > maxFileBytes)
    throw new ToolError(`${name} has ${kind.size} bytes, too many; use bash to take a part.`);
  return readFile(file).catch(explain(name));
}

/** By rename, so that nobody sees half a file; a link is followed and the file's mode is kept. */
async function replace(file: string, content: string): Promise<void> {
  const target = await realpath(file).catch(() => file);
  const old = await stat(target).catch(() => null);
  if (old && !old.isFile()) throw new ToolError(`${file} is no regular file.`);
  if (!old) return writeFile(target, content);
  const temporary = `${target}.berth-tmp`;
  const handle = await open(temporary, 'w', old.mode & 0o777);
  try {
    await handle.chmod(old.mode & 0o777);
    await handle.writeFile(content);
    await handle.close();
    await rename(temporary, target);
  } catch (error) {
    await handle.close().catch(() => undefined);
    await rm(temporary, { force: true });
    throw error;
  }
}

function explain(name: string): (error: NodeJS.ErrnoException) => never {
  return (error) => {
    if (error instanceof ToolError) throw error;
    if (error.code === 'ENOENT') throw new ToolError(`${name} does not exist.`);
    if (error.code === 'EISDIR') throw new ToolError(`${name} is a directory.`);
    if (error.code === 'EACCES' || error.code === 'EROFS')
      throw new ToolError(`${name} may not be accessed here.`);
    if (error.code === 'ENOSPC' || error.code === 'EDQUOT')
      throw new ToolError(`The disk is full: ${name} was not written.`);
    throw new ToolError(`${name}: ${error.message}`);
  };
}

let queue: Promise<unknown> = Promise.resolve();

/** Changes of files run one after the other, since parallel calls of one answer may edit the same file. */
function alone<T>(work: () => Promise<T>): Promise<T> {
  const done = queue.then(work);
  queue = done.catch(() => undefined);
  return done;
}
