import { BerthError, createClient } from '@berth/sdk';
import manifest from '../package.json' with { type: 'json' };
import { exitCodes, findCommand, parse, UsageError, type Context } from './command.ts';
import { commands } from './commands.ts';
import { login } from './commands/account.ts';
import { help, helpOfCommand, helpOfGroup, helpOfHost } from './help.ts';
import { isHostCommand, runOnHost } from './host.ts';
import { safe } from './print.ts';
import { readSettings } from './settings.ts';

/** Waits until what was written has left the process, since `process.exit` would cut a pipe short. */
async function flush(): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise<void>((resolve) => stream.write('', () => resolve()));
  }
}

function tell(text: string): number {
  process.stdout.write(text);
  return exitCodes.ok;
}

async function run(given: string[], signal: AbortSignal): Promise<number> {
  // `berth --json agents list` is the same as `berth agents list --json`.
  const moved = given[0] === '--json' ? [...given.slice(1), '--json'] : given;
  // `berth help agents create` is the same as `berth agents create --help`.
  const argv = moved[0] === 'help' && moved.length > 1 ? [...moved.slice(1), '--help'] : moved;
  if (argv.length === 0 || argv[0] === 'help' || argv[0] === '--help' || argv[0] === '-h') {
    return tell(help(commands));
  }
  if (argv.length === 1 && ['--version', '-V', 'version'].includes(argv[0]!)) {
    return tell(`berth ${manifest.version}\n`);
  }
  if (isHostCommand(argv)) {
    const told = helpOfHost(commands, argv);
    return told === null ? runOnHost(argv) : tell(told);
  }
  const group = findCommand(commands, argv) ? null : helpOfGroup(commands, argv);
  if (group !== null) {
    if (argv.includes('--help') || argv.includes('-h')) return tell(group);
    // Not what was asked for, so it is none of the data, and a script must notice.
    process.stderr.write(group);
    return exitCodes.failed;
  }
  const { command, args, values } = parse(commands, argv);
  if (values['help']) return tell(helpOfCommand(commands, command));
  const settings = readSettings(process.env);
  if (!settings && command !== login) {
    process.stderr.write('no key: run "berth login", or set BERTH_API_KEY\n');
    return exitCodes.authentication;
  }
  const url = settings?.url ?? process.env['BERTH_URL'] ?? 'http://localhost:8080';
  // `login` replaces what is stored, so it takes a key from the environment but never the stored one.
  const key = command === login ? (process.env['BERTH_API_KEY'] ?? '') : settings!.key;
  const context: Context = {
    client: createClient({ baseUrl: url, apiKey: key }),
    url,
    key,
    json: values['json'] === true,
    // Nothing is returned: what a command returns is its exit code.
    out: (text) => void process.stdout.write(text),
    note: (text) => void process.stderr.write(text),
    stdin: process.stdin,
    signal,
    env: process.env,
  };
  return (await command.run(context, args, values)) ?? exitCodes.ok;
}

function report(error: unknown): number {
  if (error instanceof UsageError) {
    process.stderr.write(`${error.message}\n`);
    return exitCodes.failed;
  }
  if (error instanceof BerthError) {
    const lines = [
      safe(error.message) + (error.code ? ` (${error.code})` : ''),
      ...error.details.map((detail) => `  ${safe(detail.path)}: ${safe(detail.message)}`),
      ...(error.status >= 500 && error.requestId ? [`  request ${safe(error.requestId)}`] : []),
    ];
    process.stderr.write(`${lines.join('\n')}\n`);
    return error.status === 401 ? exitCodes.authentication : exitCodes.failed;
  }
  // A file or folder here that cannot be read or written: the message names it, and a stack would hide that.
  const { code, path, message } = (error ?? {}) as NodeJS.ErrnoException;
  const isOfFile = code !== undefined && path !== undefined;
  process.stderr.write(`${isOfFile ? safe(message) : ((error as Error)?.stack ?? String(error))}\n`);
  return exitCodes.failed;
}

const stop = new AbortController();
process.once('SIGINT', () => stop.abort());
// A reader that went away (`berth agents list | head -1`) is no fault.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));

const code = await run(process.argv.slice(2), stop.signal).catch((error: unknown) =>
  stop.signal.aborted ? exitCodes.cancelled : report(error),
);
await flush();
process.exit(code);
