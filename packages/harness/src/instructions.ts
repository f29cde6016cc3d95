import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';

const maxInstructionBytes = 128 * 1024;

/** The repository's own words win: ours only say where the model is and how its tools behave. */
export function systemText(cwd: string, file: string | null): string {
  const base = [
    'You are an agent that works in a sandbox. Use your tools to do what is asked, then answer with the result.',
    `Your workspace is ${cwd}. It is kept between conversations; other conversations of the same agent share it.`,
    'Call tools that do not depend on each other at the same time. Check your work before you say that it is done.',
  ].join('\n');
  const instructions = readInstructions(cwd, file);
  return instructions === '' ? base : `${base}\n\n# Instructions of this agent\n\n${instructions}`;
}

/** Read at every turn, since a deployment or the agent itself may have changed it. */
function readInstructions(cwd: string, file: string | null): string {
  for (const name of file === null ? ['AGENTS.md', 'CLAUDE.md'] : [file]) {
    const text = readSmall(join(cwd, name));
    if (text !== null && text.trim() !== '') return text.trim();
  }
  return '';
}

function readSmall(path: string): string | null {
  let descriptor: number;
  try {
    // Without waiting, since a pipe in its place would hold every conversation up.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    const kind = fstatSync(descriptor);
    if (!kind.isFile()) return null;
    const bytes = Buffer.alloc(Math.min(kind.size, maxInstructionBytes));
    return bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, 0)).toString('utf8');
  } catch {
    return null;
  } finally {
    closeSync(descriptor);
  }
}
