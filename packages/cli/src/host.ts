import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Commands that need the service's own machine (its data directory, its database): they are the server's, which this
 * command line starts with the same arguments.
 */
export const hostCommands: [name: string, usage: string, summary: string][] = [
  ['doctor', '[--json]', 'Say what this machine offers and lacks'],
  ['backup', '<folder>', 'Write the database and the repositories to a folder'],
  ['restore', '<folder> [--force]', 'Read a backup into an empty installation'],
  ['host keys create', '[name]', 'Make an edit key for the whole organisation, on the host'],
  ['rotate-encryption-key', '', 'Replace the key under which secrets are kept'],
];

export function isHostCommand(argv: string[]): boolean {
  return hostCommands.some(([name]) => name.split(' ').every((word, at) => argv[at] === word));
}

export function runOnHost(argv: string[]): Promise<number> {
  const packages = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
  const main = join(packages, 'server', 'src', 'main.mjs');
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [main, ...argv], { stdio: 'inherit' });
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal));
    child.on('close', (code) => resolve(code ?? 1));
  });
}
