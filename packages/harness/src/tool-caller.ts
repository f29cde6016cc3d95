import { readFile, stat } from 'node:fs/promises';
import { basename, extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { oneLine, optionalText, text, ToolError } from './tool.ts';
import type { Tool, ToolContext, ToolOutcome } from './tool.ts';

/** As base64 it fits into what a turn may put into artifacts. */
const maxFileBytes = 4 * 1024 * 1024;
const maxOptions = 20;

/** By the ending of a file's name; what is not here is told apart by whether it is text. */
const mediaTypes: Record<string, string> = {
  '.csv': 'text/csv',
  '.html': 'text/html',
  '.jpeg': 'image/jpeg',
  '.jpg': 'image/jpeg',
  '.json': 'application/json',
  '.md': 'text/markdown',
  '.pdf': 'application/pdf',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.webp': 'image/webp',
  '.xml': 'application/xml',
  '.zip': 'application/zip',
};

/** Hands a file to whoever sent the message, as an artifact of the run. */
export const publishTool: Tool = {
  kind: 'other',
  title: (input) => `Hand over ${oneLine(input['file'])}`,
  run: publish,
  definition: {
    name: 'publish',
    description:
      'Hand a finished file to the user, who does not see the workspace. Use it for results that are files, and write ' +
      'in your answer what they are.',
    parameters: {
      type: 'object',
      properties: {
        file: { type: 'string', description: 'Path of the file, from the workspace or absolute.' },
        title: { type: 'string', description: 'What to call it; the name of the file when absent.' },
      },
      required: ['file'],
    },
  },
};

/** Asks whoever sent the message, and waits for the answer. */
export const askTool: Tool = {
  kind: 'other',
  title: (input) => `Ask: ${oneLine(input['question'])}`,
  run: ask,
  definition: {
    name: 'ask',
    description:
      'Ask the user one question and wait for the answer. Only when you cannot go on without it: the user may be away ' +
      'for long.',
    parameters: {
      type: 'object',
      properties: {
        question: { type: 'string', description: 'The question, whole by itself.' },
        options: {
          type: 'array',
          items: { type: 'string' },
          description: 'The answers to choose from, if any.',
        },
      },
      required: ['question'],
    },
  },
};

async function publish(input: Record<string, unknown>, { cwd, caller }: ToolContext): Promise<ToolOutcome> {
  const name = text(input, 'file');
  const title = optionalText(input, 'title') || basename(name);
  const path = resolve(cwd, name);
  const found = await stat(path).catch(() => null);
  if (!found?.isFile()) throw new ToolError(`There is no file ${name}.`);
  if (found.size > maxFileBytes)
    throw new ToolError(`${name} has ${found.size} bytes; at most ${maxFileBytes} can be handed over.`);
  const bytes = await readFile(path);
  const isText = !bytes.subarray(0, 8000).includes(0);
  const mimeType =
    mediaTypes[extname(name).toLowerCase()] ?? (isText ? 'text/plain' : 'application/octet-stream');
  const resource = { uri: pathToFileURL(path).href, mimeType, blob: bytes.toString('base64') };
  // By its path, so that a file that is handed over again takes the place of what it was.
  caller.artifact({ type: 'resource', resource }, { id: path.slice(-200), name: title.slice(0, 200) });
  return { text: `The user has ${title} (${bytes.length} bytes).`, isError: false };
}

async function ask(input: Record<string, unknown>, { caller, signal }: ToolContext): Promise<ToolOutcome> {
  const question = text(input, 'question');
  const given = input['options'];
  const options = Array.isArray(given)
    ? given.filter((one): one is string => typeof one === 'string' && one !== '')
    : [];
  if (options.length > maxOptions) throw new ToolError(`At most ${maxOptions} options.`);
  const answer = {
    type: 'string',
    title: 'Answer',
    ...(options.length > 0 && { enum: [...new Set(options)] }),
  };
  const form = { type: 'object', properties: { answer }, required: ['answer'] };
  const said = await caller.ask(question, form, signal);
  if (said === null) return { text: 'The user gave no answer.', isError: false };
  const words = said['answer'];
  return { text: typeof words === 'string' ? words : JSON.stringify(said), isError: false };
}
