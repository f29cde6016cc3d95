import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import type { HostLink } from './host-link.ts';
import { LaunchError } from './settings.ts';
import { wholeLines } from './whole-lines.ts';

/**
 * Runs the command of `agent.json` in the place of the built-in harness, and passes whole lines between it and the
 * service. What it writes to stderr goes to the sandbox's log too. Resolves with the exit code to end with.
 */
export function runCustom(
  argv: readonly string[],
  cwd: string,
  env: Record<string, string>,
  link: HostLink,
): Promise<number> {
  const [program = '', ...args] = argv;
  const child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const forward = (signal: NodeJS.Signals) => child.kill(signal);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, forward);
  link.onLines = (lines) => child.stdin.write(lines);
  link.onEnd = () => child.stdin.end();
  link.onPause = (isPaused) => (isPaused ? child.stdout.pause() : child.stdout.resume());
  child.stdin.on('error', () => undefined);
  child.stdout.on(
    'data',
    wholeLines((lines) => link.write(lines)),
  );
  child.stderr.on(
    'data',
    wholeLines((lines) => {
      process.stderr.write(lines);
      for (const line of lines.toString('utf8').split('\n')) if (line !== '') link.log(line);
    }),
  );
  return new Promise((resolve, reject) => {
    child.on('error', (error: NodeJS.ErrnoException) => {
      const why =
        error.code === 'ENOENT'
          ? 'was not found'
          : error.code === 'EACCES'
            ? 'may not be executed'
            : error.message;
      reject(
        new LaunchError(error.code === 'EACCES' ? 126 : 127, `agent.json: the command "${program}" ${why}.`),
      );
    });
    child.on('exit', (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)));
  });
}
