import type { Command } from './command.ts';
import { hostCommands } from './host.ts';

interface Entry {
  name: string;
  usage: string;
  summary: string;
}

const isBelow = (words: string[], name: string): boolean => {
  const own = name.split(' ');
  return own.length > words.length && words.every((word, at) => own[at] === word);
};

const row = ({ name, usage, summary }: Entry) => `  ${`berth ${name} ${usage}`.trimEnd()}\n      ${summary}`;

function entries(commands: Command[]): Entry[] {
  return [...commands, ...hostCommands.map(([name, usage, summary]) => ({ name, usage, summary }))];
}

/** All commands. */
export function help(commands: Command[]): string {
  return [
    'berth: run and talk to agents',
    '',
    ...entries(commands).map(row),
    '',
    'Everywhere: --json prints data as JSON, --help says how a command is used, --version which version this is. Data goes to standard output, notes to standard error.',
    'BERTH_URL and BERTH_API_KEY win over what "berth login" stored.',
    'Exit codes: 0 done, 1 failed, 2 cancelled, 4 a key is missing or not accepted.',
    '',
  ].join('\n');
}

/** One command, and what is below it. */
export function helpOfCommand(commands: Command[], { name, usage, summary }: Entry): string {
  const below = entries(commands).filter((entry) => isBelow(name.split(' '), entry.name));
  const lines = [`berth ${name} ${usage}`.trimEnd(), summary];
  return `${[...lines, ...(below.length > 0 ? ['', ...below.map(row)] : [])].join('\n')}\n`;
}

/** The commands that begin with these words and need one more; null when there are none. */
export function helpOfGroup(commands: Command[], argv: string[]): string | null {
  const end = argv.findIndex((word) => word.startsWith('-'));
  const words = end === -1 ? argv : argv.slice(0, end);
  const below = words.length === 0 ? [] : entries(commands).filter((entry) => isBelow(words, entry.name));
  return below.length === 0 ? null : `berth ${words.join(' ')} …\n\n${below.map(row).join('\n')}\n`;
}

/** Of a command that runs on the host, when that is what is asked for; else null. */
export function helpOfHost(commands: Command[], argv: string[]): string | null {
  if (!argv.includes('--help') && !argv.includes('-h')) return null;
  const found = hostCommands.find(([name]) => name.split(' ').every((word, at) => argv[at] === word));
  if (!found) return null;
  const [name, usage, summary] = found;
  return helpOfCommand(commands, { name, usage, summary });
}
