import { parseArgs, type ParseArgsConfig } from 'node:util';
import type { BerthClient } from '@berth/sdk';

/** Exit codes as those of `gh`: 0 done, 1 failed, 2 cancelled, 4 authentication needed. */
export const exitCodes = { ok: 0, failed: 1, cancelled: 2, authentication: 4 } as const;

export interface Context {
  client: BerthClient;
  url: string;
  key: string;
  /** `--json`: data is printed as JSON, one document (or one line per item where it streams). */
  json: boolean;
  /** Data for programs and people: standard output. */
  out: (text: string | Uint8Array) => void;
  /** Notes for people: standard error. */
  note: (text: string) => void;
  stdin: NodeJS.ReadableStream & { isTTY?: boolean };
  signal: AbortSignal;
  env: Record<string, string | undefined>;
}

export type Values = Record<string, string | boolean | string[] | undefined>;

export interface Command {
  /** Words that name it, e.g. `agents create`. */
  name: string;
  /** What stands after the name in the usage line. */
  usage: string;
  summary: string;
  options?: NonNullable<ParseArgsConfig['options']>;
  /** Least and most number of positional arguments. */
  positionals: [number, number];
  run(context: Context, args: string[], values: Values): Promise<number | void>;
}

export class UsageError extends Error {}

const common = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const;

/** The command that is named by the longest run of leading words. */
export function findCommand(commands: Command[], argv: string[]): Command | undefined {
  return commands
    .filter((candidate) => candidate.name.split(' ').every((word, at) => argv[at] === word))
    .toSorted((a, b) => b.name.length - a.name.length)[0];
}

/** Finds the command and reads its options. */
export function parse(
  commands: Command[],
  argv: string[],
): { command: Command; args: string[]; values: Values } {
  const command = findCommand(commands, argv);
  if (!command) throw new UsageError(`unknown command "${argv.slice(0, 2).join(' ')}"; see: berth help`);
  try {
    const { values, positionals } = parseArgs({
      args: argv.slice(command.name.split(' ').length),
      options: { ...common, ...command.options },
      allowPositionals: true,
    });
    const [least, most] = command.positionals;
    if (!values['help'] && (positionals.length < least || positionals.length > most)) {
      throw new UsageError(`usage: berth ${command.name} ${command.usage}`.trimEnd());
    }
    return { command, args: positionals, values: values as Values };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(
      `${(error as Error).message}\nusage: berth ${command.name} ${command.usage}`.trimEnd(),
    );
  }
}

export function text(values: Values, name: string): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}
