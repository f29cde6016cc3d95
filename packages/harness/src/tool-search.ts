import { CappedOutput } from './output.ts';
import { runProcess } from './processes.ts';
import { oneLine, optionalText, ToolError } from './tool.ts';
import type { Tool, ToolContext, ToolOutcome } from './tool.ts';

const skipped = ['.git', 'node_modules', '.venv', '__pycache__'];
const maxLines = 200;
const maxLineChars = 400;
const timeoutMs = 60_000;

/** By grep and find: a pattern that never ends is a process that can be killed, not a stopped event loop. */
export const searchTool: Tool = {
  kind: 'search',
  title: (input) => `Search ${oneLine(input['pattern'] ?? input['files'])}`,
  run,
  definition: {
    name: 'search',
    description:
      'Search the text of files by a regular expression (as `path:line:text`), or, without a pattern, find files by ' +
      `name. ${skipped.join(', ')} are left out.`,
    parameters: {
      type: 'object',
      properties: {
        pattern: { type: 'string', description: 'Perl-style regular expression.' },
        path: { type: 'string', description: 'Directory or file to search; the workspace when absent.' },
        files: { type: 'string', description: 'Only files whose name matches, for example *.ts' },
      },
    },
  },
};

async function run(input: Record<string, unknown>, context: ToolContext): Promise<ToolOutcome> {
  const pattern = optionalText(input, 'pattern');
  const files = optionalText(input, 'files');
  const path = optionalText(input, 'path') || '.';
  if (!pattern && !files) throw new ToolError('Give "pattern", "files" or both.');
  const argv = pattern ? grep(pattern, files, path) : find(files ?? '*', path);
  // Some more than is shown, so that a cut can be told from an end.
  const output = new CappedOutput(maxLines * maxLineChars * 2, 0);
  const end = await runProcess({
    argv,
    cwd: context.cwd,
    env: { ...(await context.childEnv()), LC_ALL: 'C.UTF-8' },
    mark: context.mark,
    timeoutMs,
    signal: context.signal,
    onOutput: (chunk) => output.push(chunk),
  });
  if (end.reason === 'cancelled') return { text: '[cancelled]', isError: true };
  if (end.reason === 'failed') throw new ToolError(`The search could not be started: ${end.message}`);
  const shown = cut(output.text());
  if (end.reason === 'timeout')
    return { text: `${shown}\n[ended after ${timeoutMs / 1000} seconds]`, isError: true };
  if (shown === '') return { text: 'Nothing found.', isError: false };
  // A single unreadable folder is no failure of the search; a message and nothing else is one.
  const isError = shown.split('\n').every((line) => /^(grep|find): /.test(line));
  return { text: shown, isError };
}

function grep(pattern: string, files: string | undefined, path: string): string[] {
  const include = files ? [`--include=${files}`] : [];
  const exclude = skipped.map((name) => `--exclude-dir=${name}`);
  return ['grep', '-rnIP', '-m', `${maxLines}`, ...include, ...exclude, '-e', pattern, '--', path];
}

function find(files: string, path: string): string[] {
  const prune = skipped.flatMap((name, index) => (index === 0 ? ['-name', name] : ['-o', '-name', name]));
  // find takes a path that begins with a dash for an option.
  const from = path.startsWith('-') ? `./${path}` : path;
  return ['find', from, '(', ...prune, ')', '-prune', '-o', '-type', 'f', '-name', files, '-print'];
}

function cut(output: string): string {
  const lines = output.split('\n').filter((line) => line !== '');
  const shown = lines.slice(0, maxLines).map((line) => {
    const clean = line.startsWith('./') ? line.slice(2) : line;
    return clean.length > maxLineChars ? `${clean.slice(0, maxLineChars)}…` : clean;
  });
  if (lines.length > maxLines) shown.push(`[more than ${maxLines} lines; narrow the search]`);
  return shown.join('\n');
}
