import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { sandboxEndCodes } from '../../domain/ports/sandbox-control.ts';
import { model, money, nextCursor, pageFields, text, time, uuid } from './basics.ts';

export const Sandbox = model(
  'Sandbox',
  z.object({
    agentId: uuid('The agent.'),
    state: z.enum(['stopped', 'starting', 'running', 'stopping', 'failed']),
    frozen: z
      .boolean()
      .describe('It runs, but its processes are stopped where they are until it is used again.'),
    sandboxId: z.string().nullable().meta({
      format: 'uuid',
      description: 'Names this start of it; of a stopped one the last, null when there was none.',
    }),
    node: z.string().nullable().describe('The node of the service that it is on, or was on last.'),
    since: z.string().nullable().meta({
      format: 'date-time',
      description: 'Since when it is in this state; null when it was never started.',
    }),
    cpuMicros: z
      .int()
      .nullable()
      .describe('CPU time since its start, in microseconds; null unless it runs here.'),
    memoryBytes: z.int().nullable().describe('Memory in use now; null unless it runs here.'),
    processes: z.int().nullable().describe('Processes and threads in it now; null unless it runs here.'),
    runningTurns: z.int().describe('Turns that are under way in it.'),
    costSoFar: money('What the agent has used since this sandbox was started, models included.'),
    reason: z.string().nullable().describe('Why it ended or failed, in words.'),
  }),
  'Where an agent runs. Each agent has one, which is started when it is needed and stopped when it is idle; its files stay.',
);

export const SandboxAnswer = model('SandboxAnswer', z.object({ sandbox: Sandbox }));
export const SandboxPage = model('SandboxPage', z.object({ sandboxes: z.array(Sandbox), nextCursor }));

const encoding = z
  .enum(['utf-8', 'base64'])
  .describe('`utf-8`: as text, what is none as U+FFFD. `base64`: the exact bytes.');

export const ExecCreate = model(
  'ExecCreate',
  z.strictObject({
    command: z
      .array(text(0, limits.execArgumentChars, 'An argument.'))
      .min(1)
      .max(limits.execArguments)
      .describe('The program and its arguments. No shell is between; say `["sh", "-c", "…"]` for one.'),
    stdin: text(0, limits.bodyBytes, 'The standard input, in `encoding`; none when left out.').optional(),
    env: z
      .record(
        z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'must be names of variables'),
        text(0, limits.execArgumentChars, 'A value.'),
      )
      .refine(
        (value) => Object.keys(value).length <= limits.execVariables,
        `must have at most ${limits.execVariables} variables`,
      )
      .describe("Variables beside the agent's own, over which they win.")
      .optional(),
    cwd: text(1, 4096, 'The folder to start in, absolute; `/workspace` when left out.').optional(),
    timeoutMs: z
      .int()
      .min(1)
      .max(limits.execTimeoutMaxMs)
      .describe(`After it the command is killed; ${limits.execTimeoutDefaultMs} when left out.`)
      .optional(),
    encoding: encoding.optional(),
  }),
);

export const ExecAnswer = model(
  'ExecAnswer',
  z.object({
    exitCode: z.int().nullable().describe('Null when a signal ended it, or the sandbox ended.'),
    signal: z.string().nullable().describe('The signal that ended it.'),
    timedOut: z.boolean().describe('It was killed since it took longer than `timeoutMs`.'),
    sandboxEnd: z
      .object({
        code: z.enum(sandboxEndCodes).describe('Out of memory, out of disk, or ended for another reason.'),
        error: z.string().describe('A sentence that says why.'),
      })
      .nullable()
      .describe('Why the sandbox ended with the command; null when it did not.'),
    durationMs: z.int(),
    stdout: z.string(),
    stderr: z.string(),
    encoding,
    truncated: z
      .boolean()
      .describe(
        `An output was longer than ${limits.execOutputBytes} bytes and is cut there; stream it to get all.`,
      ),
  }),
  'How a command ended and what it wrote.',
);

export const SandboxFile = model(
  'SandboxFile',
  z.object({
    name: z
      .string()
      .describe('The name; what is no UTF-8 in it is shown as U+FFFD, so address it by `href`.'),
    href: z.string().describe('Its address, with every byte of the name as it is.'),
    type: z.enum(['file', 'folder', 'link', 'other']).describe('`other`: a pipe, a socket or a device.'),
    sizeBytes: z.int().describe('Of a file its length, else 0.'),
    mode: z.string().meta({ pattern: '^[0-7]{3}$', description: 'Permission bits, octal.' }),
    modifiedAt: time('When its content changed last.'),
    target: z
      .string()
      .nullable()
      .describe('Where a link leads; null for all others. Links are not followed.'),
    etag: z.string().nullable().describe('The `ETag` of a file, for `If-Match`; null for all others.'),
  }),
);
export const SandboxFilePage = model(
  'SandboxFilePage',
  z.object({ files: z.array(SandboxFile), nextCursor }),
  'What is in a folder, by name.',
);
export const SandboxFileWritten = model(
  'SandboxFileWritten',
  z.object({
    file: SandboxFile.nullable().describe('The file or folder; null when an archive was unpacked.'),
    unpacked: z
      .object({ entries: z.int(), bytes: z.int() })
      .nullable()
      .describe('How much came out of the archive; null when none was sent.'),
  }),
);

const flag = (description: string) =>
  z
    .enum(['', 'true', 'false', '1', '0'])
    .optional()
    .transform((value) => value !== undefined && value !== 'false' && value !== '0')
    .meta({ enum: ['', 'true', 'false', '1', '0'], type: 'string', description });

export const fileListQuery = z.strictObject({
  ...pageFields,
  list: flag('List the folder. It is what a folder is answered with anyway.'),
  archive: z
    .literal('tar')
    .optional()
    .meta({ type: 'string', enum: ['tar'], description: 'The folder or file as a tar archive.' }),
});

export const fileWriteQuery = z.strictObject({
  mode: z
    .string()
    .regex(/^0?[0-7]{3}$/, 'must be three octal digits, such as 755, or four with a leading 0')
    .optional()
    .transform((value) => (value === undefined ? null : Number.parseInt(value, 8)))
    .meta({
      type: 'string',
      pattern: '^0?[0-7]{3}$',
      description:
        'Permission bits of the file: three octal digits, or four with a leading 0; without it those of the file that is replaced, else 644.',
    }),
});

export const fileDeleteQuery = z.strictObject({
  recursive: flag('Delete a folder with all that is in it.'),
});
