import { everyItem, isAway, type ExecEvent, type Sandbox } from '@berth/sdk';
import { exitCodes, text, UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable, safe } from '../print.ts';

function mebibytes(bytes: number | null): string | null {
  return bytes === null ? null : `${Math.round(bytes / 1024 / 1024)} MiB`;
}

const stateOf = (sandbox: Sandbox): string => (sandbox.frozen ? 'running (frozen)' : sandbox.state);

function show(context: Context, sandbox: Sandbox): void {
  printOne(context, sandbox, [
    ['agent', sandbox.agentId],
    ['state', stateOf(sandbox)],
    ['since', sandbox.since],
    ['turns', sandbox.runningTurns],
    ['cpu', sandbox.cpuMicros === null ? null : `${(sandbox.cpuMicros / 1e6).toFixed(2)} s`],
    ['memory', mebibytes(sandbox.memoryBytes)],
    ['processes', sandbox.processes],
    ['cost so far', `$${sandbox.costSoFar}`],
    ['node', sandbox.node],
    ['reason', sandbox.reason],
  ]);
}

type Verb = 'start' | 'stop' | 'restart' | 'kill';
const verbs: [Verb, string][] = [
  ['start', 'Start an agent’s sandbox'],
  ['stop', 'Stop it when its turns have ended; its files stay'],
  ['restart', 'Stop and start it'],
  ['kill', 'End everything in it at once'],
];

const exec: Command = {
  name: 'sandbox exec',
  usage: '<agent> [-i] [--cwd DIR] [--env NAME=VALUE]... [--timeout SECONDS] -- <command> [arguments...]',
  summary: 'Run a command in a sandbox, with -i on your standard input; exits with its code',
  options: {
    stdin: { type: 'boolean', short: 'i' },
    cwd: { type: 'string' },
    env: { type: 'string', multiple: true },
    timeout: { type: 'string' },
  },
  positionals: [2, 1_001],
  async run(context, [nameOrId, ...command], values) {
    const agent = await findAgent(context, nameOrId!);
    const cwd = text(values, 'cwd');
    const seconds = text(values, 'timeout');
    if (seconds !== undefined && !(Number(seconds) > 0)) throw new UsageError('--timeout takes seconds');
    const input = {
      command,
      encoding: 'base64' as const,
      env: readVariables((values['env'] as string[] | undefined) ?? []),
      ...(cwd === undefined ? {} : { cwd }),
      ...(seconds === undefined ? {} : { timeoutMs: Math.round(Number(seconds) * 1000) }),
      ...(values['stdin'] ? { stdin: await readInput(context) } : {}),
    };
    if (context.json) {
      const answer = await context.client.sandboxes.exec(
        agent.id,
        { ...input, encoding: 'utf-8' },
        context.signal,
      );
      context.out(`${JSON.stringify(answer, null, 2)}\n`);
      return exitOf({ type: 'exit', ...answer });
    }
    let code: number = exitCodes.failed;
    for await (const event of context.client.sandboxes.execStream(agent.id, input, context.signal)) {
      if (event.type === 'exit') code = exitOf(event);
      else if (event.type === 'stdout') context.out(Buffer.from(event.data, 'base64'));
      else process.stderr.write(Buffer.from(event.data, 'base64'));
      if (event.type === 'exit' && event.timedOut) context.note('berth: it took too long and was killed\n');
      if (event.type === 'exit' && event.sandboxEnd) context.note(`berth: ${event.sandboxEnd.error}\n`);
    }
    return code;
  },
};

function exitOf(end: Extract<ExecEvent, { type: 'exit' }>): number {
  return end.exitCode ?? exitCodes.failed;
}

function readVariables(given: string[]): Record<string, string> {
  return Object.fromEntries(
    given.map((one) => {
      const equals = one.indexOf('=');
      if (equals < 1) throw new UsageError(`--env takes NAME=VALUE, not "${one}"`);
      return [one.slice(0, equals), one.slice(equals + 1)];
    }),
  );
}

async function readInput(context: Context): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of context.stdin) parts.push(Buffer.from(part as Buffer));
  return Buffer.concat(parts).toString(context.json ? 'utf8' : 'base64');
}

/** Prints the log as it grows, through restarts of the service, until the sandbox ends or the context is cancelled. */
async function followLogs(context: Context, agentId: string, given: string | undefined): Promise<void> {
  let after = given;
  const { client, signal } = context;
  const onReconnect = (tries: number): void => {
    if (tries === 1) context.note('The connection broke off. Trying again.\n');
  };
  for (;;) {
    try {
      const place = after === undefined ? {} : { after };
      for await (const line of client.sandboxes.followLogs(agentId, { signal, onReconnect, ...place })) {
        after = line.id;
        context.out(context.json ? `${JSON.stringify(line)}\n` : `${line.at} ${safe(line.text)}\n`);
      }
      return;
    } catch (error) {
      if (!isAway(error)) throw error;
      context.note(`${error.message} Trying again.\n`);
    }
  }
}

export const sandboxCommands: Command[] = [
  {
    name: 'sandbox list',
    usage: '',
    summary: 'List the sandboxes of all agents',
    positionals: [0, 0],
    async run(context) {
      const sandboxes = await Array.fromAsync(everyItem(context.client.sandboxes.list));
      // Only people want them by name; one that was made or deleted in between has none.
      const agents = context.json ? [] : await Array.fromAsync(everyItem(context.client.agents.list));
      const names = new Map(agents.map(({ id, name }) => [id, name]));
      printTable(
        context,
        sandboxes,
        ['agent', 'name', 'state', 'since', 'memory', 'turns', 'cost'],
        sandboxes.map((s) => [
          s.agentId,
          names.get(s.agentId),
          stateOf(s),
          s.since,
          mebibytes(s.memoryBytes),
          s.runningTurns,
          `$${s.costSoFar}`,
        ]),
      );
    },
  },
  {
    name: 'sandbox show',
    usage: '<agent>',
    summary: 'Show an agent’s sandbox: state, use, cost so far',
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      show(context, await context.client.sandboxes.get(agent.id));
    },
  },
  ...verbs.map(([verb, summary]): Command => ({
    name: `sandbox ${verb}`,
    usage: '<agent>',
    summary,
    positionals: [1, 1],
    async run(context, [nameOrId]) {
      const agent = await findAgent(context, nameOrId!);
      show(context, await context.client.sandboxes[verb](agent.id));
    },
  })),
  exec,
  {
    name: 'sandbox logs',
    usage: '<agent> [--follow] [--after ID]',
    summary: 'Show what the programs of a sandbox had to say',
    options: { follow: { type: 'boolean', short: 'f' }, after: { type: 'string' } },
    positionals: [1, 1],
    async run(context, [nameOrId], values) {
      const agent = await findAgent(context, nameOrId!);
      const after = text(values, 'after');
      if (!values['follow'] && !context.json)
        return void context.out(safe(await context.client.sandboxes.logs(agent.id, after), true));
      await followLogs(context, agent.id, after);
      return context.signal.aborted ? exitCodes.cancelled : exitCodes.ok;
    },
  },
];
