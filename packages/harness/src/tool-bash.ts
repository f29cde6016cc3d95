import { existsSync } from 'node:fs';
import { CappedOutput } from './output.ts';
import { runProcess } from './processes.ts';
import { oneLine, optionalNumber, text, ToolError } from './tool.ts';
import type { Tool, ToolContext, ToolOutcome } from './tool.ts';

const defaultTimeoutSeconds = 120;
const maxTimeoutSeconds = 3600;
const keptBytes = 16 * 1024;
/** Linux takes at most 128 KiB in one argument. */
const maxCommandBytes = 120 * 1024;
const progressEveryMs = 1000;

export const bashTool: Tool = {
  kind: 'execute',
  title: (input) => oneLine(input['command']),
  run,
  definition: {
    name: 'bash',
    description:
      'Run a shell command in the workspace. Standard output and error come back joined, with the exit code. ' +
      'Every call is a new shell: `cd` and variables do not last. ' +
      'A server must be started in the background with its output sent to a file.',
    parameters: {
      type: 'object',
      properties: {
        command: { type: 'string', description: 'The command, for bash.' },
        timeout: {
          type: 'number',
          description: `Seconds after which it is ended; ${defaultTimeoutSeconds} when absent.`,
        },
      },
      required: ['command'],
    },
  },
};

let shell: string | undefined;

async function run(input: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
  const command = text(input, 'command');
  if (command.includes('\0')) throw new ToolError('The command has a NUL character.');
  if (Buffer.byteLength(command) > maxCommandBytes) {
    throw new ToolError('The command is too long; write a script with the write tool and run that.');
  }
  const timeoutSeconds = optionalNumber(input, 'timeout', 0.001, maxTimeoutSeconds) ?? defaultTimeoutSeconds;
  shell ??= existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh';
  const output = new CappedOutput(keptBytes, keptBytes);
  let toldBytes = 0;
  const progress = setInterval(() => {
    if (output.totalBytes === toldBytes) return;
    toldBytes = output.totalBytes;
    context.onProgress(output.text());
  }, progressEveryMs);
  try {
    // One stream for both outputs keeps their order.
    const end = await runProcess({
      argv: [shell, '-c', `exec 2>&1\n${command}`],
      cwd: context.cwd,
      env: await context.childEnv(),
      mark: context.mark,
      timeoutMs: timeoutSeconds * 1000,
      signal: context.signal,
      onOutput: (chunk) => output.push(chunk),
    });
    return describe(end, output.text(), timeoutSeconds);
  } finally {
    clearInterval(progress);
  }
}

function describe(
  end: Awaited<ReturnType<typeof runProcess>>,
  shown: string,
  timeoutSeconds: number,
): ToolOutcome {
  const before = shown === '' || shown.endsWith('\n') ? shown : `${shown}\n`;
  if (end.reason === 'failed') throw new ToolError(`The shell could not be started: ${end.message}`);
  if (end.reason === 'cancelled') return { text: `${before}[cancelled]`, isError: true };
  if (end.reason === 'timeout') {
    return {
      text: `${before}[ended after ${timeoutSeconds} seconds; give a longer timeout if it needs more]`,
      isError: true,
    };
  }
  const how = end.code === null ? `ended by ${end.signalName}` : `exit code: ${end.code}`;
  return { text: `${before}[${how}]`, isError: end.code !== 0 };
}
