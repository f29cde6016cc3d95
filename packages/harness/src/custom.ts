import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { LaunchError } from './settings.ts';

/**
 * Runs the command of `agent.json` in the place of the built-in harness. It gets our stdio itself, not a copy of it, so
 * that nothing stands between it and the host. Resolves with the exit code to end with.
 */
export function runCustom(
  argv: readonly string[],
  cwd: string,
  env: Record<string, string>,
): Promise<number> {
  const [program = '', ...args] = argv;
  const child = spawn(program, args, { cwd, env, stdio: 'inherit' });
  const forward = (signal: NodeJS.Signals) => child.kill(signal);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, forward);
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
