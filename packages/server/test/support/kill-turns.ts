import assert from 'node:assert/strict';
import type { LoggedEvent } from './scenario.ts';

/** What the demonstration provider says under what it has run. A cut answer has no such end. */
const LAST_WORDS =
  "\n\n(This is Berth's demonstration provider: the sandbox ran this, no language model was asked.)";
/** How the harness tells, in the next attempt, of a command whose end nobody saw. */
const UNKNOWN = /^The service was interrupted while this ran\. It is unknown whether it happened/;
/** What the shell and its programs say of a child that was killed, or of a disk without room. */
const COMPLAINT = /^(?:\S*sh: line \d+|wc|sleep): /;

/** Writes a marker into the workspace, and says so only when that went well: in words that the command itself does not hold. */
const keep = (marker: string) => `echo ${marker} >> done.txt && echo ke""pt-${marker}`;
export const isKept = (event: LoggedEvent, marker: string) =>
  JSON.stringify(event.data).includes(`kept-${marker}`);

export function contentOf(draw: number, marker: string): string {
  if (draw < 0.3) return `say: ${marker} and some more words to stream`;
  if (draw < 0.5) return `slow: ${Math.floor(draw * 40)} 25`;
  if (draw < 0.8) return `run: ${keep(marker)}; sleep 0.2; echo ${marker}`;
  return `run: ${keep(marker)}\nrun: sleep 0.3; wc -l < done.txt\nrun: echo ${marker}`;
}

const commandsOf = (content: string): string[] =>
  content.split('\n').flatMap((line) => (line.startsWith('run: ') ? [line.slice(5)] : []));

/** The lines that a command of `contentOf` writes when nothing is in its way. */
function linesOf(command: string, marker: string): (string | RegExp)[] {
  const lines: (string | RegExp)[] = [];
  if (command.includes('done.txt &&')) lines.push(`kept-${marker}`);
  if (command.includes('wc -l')) lines.push(/^\d+$/);
  if (command.endsWith(`echo ${marker}`)) lines.push(marker);
  return lines;
}

export interface Hindrances {
  /** Processes of the sandbox were killed, or its disk was full. */
  mayFail: boolean;
  attempts: number;
}

/** The answer to a turn is that to its own message alone, and whole; where a command was cut off, it says so. */
export function checkAnswer(content: string, marker: string, answer: string, hindrances: Hindrances): void {
  const told = `${content} -> ${JSON.stringify(answer)}`;
  const commands = commandsOf(content);
  if (commands.length === 0) return assert.equal(answer, answerTo(content), told);
  assert.ok(answer.endsWith(LAST_WORDS), `${told} is cut off`);
  let rest = answer.slice(0, -LAST_WORDS.length);
  for (const [index, command] of commands.entries()) {
    const head = `${index === 0 ? '' : '\n\n'}$ ${command}\n\`\`\`\n`;
    assert.ok(rest.startsWith(head), `${told}: each command is told in its order, and nothing else`);
    const end = rest.indexOf('\n```', head.length - 1);
    checkOutput(rest.slice(head.length, end), linesOf(command, marker), hindrances, told);
    rest = rest.slice(end + 4);
  }
  assert.equal(rest, '', `${told}: nothing else is told`);
}

function answerTo(content: string): string {
  const count = Number(/^slow: (\d+)/.exec(content)?.[1] ?? 0);
  if (count === 0) return content.slice('say: '.length);
  return Array.from({ length: count }, (_, index) => `${index + 1} `).join('');
}

function checkOutput(
  output: string,
  expected: (string | RegExp)[],
  { mayFail, attempts }: Hindrances,
  told: string,
): void {
  if (attempts > 1 && UNKNOWN.test(output)) return;
  const lines = output.split('\n');
  const end = lines.pop()!;
  const said = lines.filter((line) => !COMPLAINT.test(line));
  if (!mayFail || (end === '[exit code: 0]' && said.length === lines.length)) {
    assert.equal(end, '[exit code: 0]', told);
    assert.ok(lines.length === expected.length && isPartOf(lines, expected), `${told} is not what was run`);
    return;
  }
  assert.match(end, /^\[(?:exit code: \d+|ended by SIG[A-Z]+)\]$/, told);
  assert.ok(isPartOf(said, expected), `${told} is not what was run`);
}

/** In the same order, with some missing at most. */
function isPartOf(lines: string[], expected: (string | RegExp)[]): boolean {
  let at = 0;
  return lines.every((line) => {
    const found = expected.findIndex(
      (one, index) => index >= at && (typeof one === 'string' ? one === line : one.test(line)),
    );
    at = found + 1;
    return found >= 0;
  });
}

/** Whatever became of a run: the tools that it tells of are those that its own message asked for. */
export function checkOwnTools(content: string, own: LoggedEvent[]): void {
  const commands = commandsOf(content);
  for (const { type, data } of own) {
    if (!type.startsWith('tool.')) continue;
    assert.ok(commands.includes(data.title), `${content} tells of ${JSON.stringify(data)}`);
  }
}
