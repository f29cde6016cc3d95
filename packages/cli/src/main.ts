import { BerthError, createClient } from '@berth/sdk';
import { exitCodes, parse, UsageError, type Command, type Context } from './command.ts';
import { login, whoami } from './commands/account.ts';
import { acp } from './commands/acp.ts';
import { agentCommands } from './commands/agents.ts';
import { budgetCommands } from './commands/budget.ts';
import { chat } from './commands/chat.ts';
import { deploy, deploymentCommands } from './commands/deploy.ts';
import { keyCommands } from './commands/keys.ts';
import { conversationCommands } from './commands/conversations.ts';
import { runExtraCommands } from './commands/run-extras.ts';
import { runCommands } from './commands/runs.ts';
import { secretCommands } from './commands/secrets.ts';
import { egressCommands } from './commands/egress.ts';
import { sandboxFileCommands } from './commands/sandbox-files.ts';
import { sandboxCommands } from './commands/sandbox.ts';
import { channelCommands } from './commands/channels.ts';
import { webhookCommands } from './commands/webhooks.ts';
import { scheduleCommands } from './commands/schedules.ts';
import { webhookEndpointCommands } from './commands/webhook-endpoints.ts';
import { snapshotCommands } from './commands/snapshots.ts';
import { terminal } from './commands/terminal.ts';
import { hostCommands, isHostCommand, runOnHost } from './host.ts';
import { safe } from './print.ts';
import { readSettings } from './settings.ts';

export const commands: Command[] = [
  login,
  whoami,
  ...agentCommands,
  deploy,
  ...deploymentCommands,
  chat,
  acp,
  ...conversationCommands,
  ...runCommands,
  ...runExtraCommands,
  ...keyCommands,
  ...secretCommands,
  ...egressCommands,
  ...channelCommands,
  ...webhookCommands,
  ...scheduleCommands,
  ...webhookEndpointCommands,
  ...budgetCommands,
  ...sandboxCommands,
  ...sandboxFileCommands,
  ...snapshotCommands,
  terminal,
];

function help(): string {
  const rows = [
    ...commands.map((command) => [`${command.name} ${command.usage}`.trim(), command.summary]),
    ...hostCommands.map(([name, usage, summary]) => [`${name} ${usage}`.trim(), summary]),
  ];
  return [
    'berth: run and talk to agents',
    '',
    ...rows.map(([usage, summary]) => `  berth ${usage}\n      ${summary}`),
    '',
    'Everywhere: --json prints data as JSON. Data goes to standard output, notes to standard error.',
    'BERTH_URL and BERTH_API_KEY win over what "berth login" stored.',
    'Exit codes: 0 done, 1 failed, 2 cancelled, 4 a key is missing or not accepted.',
    '',
  ].join('\n');
}

/** Waits until what was written has left the process, since `process.exit` would cut a pipe short. */
async function flush(): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise<void>((resolve) => stream.write('', () => resolve()));
  }
}

async function run(given: string[], signal: AbortSignal): Promise<number> {
  // `berth --json agents list` is the same as `berth agents list --json`.
  const argv = given[0] === '--json' ? [...given.slice(1), '--json'] : given;
  if (argv.length === 0 || argv[0] === 'help' || argv[0] === '--help' || argv[0] === '-h') {
    process.stdout.write(help());
    return exitCodes.ok;
  }
  if (isHostCommand(argv)) return runOnHost(argv);
  const { command, args, values } = parse(commands, argv);
  if (values['help']) {
    process.stdout.write(`berth ${command.name} ${command.usage}\n${command.summary}\n`);
    return exitCodes.ok;
  }
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
  process.stderr.write(`${(error as Error)?.stack ?? String(error)}\n`);
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
