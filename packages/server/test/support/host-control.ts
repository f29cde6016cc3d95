import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { SandboxControlError } from '../../src/domain/ports/sandbox-control.ts';
import type { SandboxControl, SandboxProcessExit } from '../../src/domain/ports/sandbox-control.ts';

const quoted = (argument: string): string => `'${argument.replaceAll("'", `'\\''`)}'`;

/** Runs commands on the host, in a folder, as a sandbox would: to test what is above the control channel alone. */
export function hostControl(cwd: string): SandboxControl {
  return {
    async connect({ port }) {
      const socket = connect({ host: '127.0.0.1', port });
      await once(socket, 'connect').catch(() => {
        throw new SandboxControlError('failed', `Nothing listens on port ${port}.`);
      });
      return socket;
    },
    async exec(command) {
      const [file, ...args] = command.command;
      // `script` of util-linux gives a command a terminal.
      const isTerminal = command.terminal !== undefined;
      const child = isTerminal
        ? spawn('script', ['-qfec', command.command.map(quoted).join(' '), '/dev/null'], {
            cwd,
            env: { PATH: process.env['PATH'], TERM: 'xterm', ...command.env },
            detached: true,
          })
        : spawn(file!, args, { cwd, env: { PATH: process.env['PATH'], ...command.env }, detached: true });
      await new Promise<void>((resolve, reject) => {
        child.once('spawn', () => resolve());
        child.once('error', () => reject(new SandboxControlError('not_found', 'There is no such program.')));
      });
      const sizes: string[] = [];
      return {
        stdin: child.stdin,
        stdout: child.stdout,
        stderr: child.stderr,
        exited: new Promise<SandboxProcessExit>((resolve) =>
          child.once('exit', (code, signal) => resolve({ code, signal })),
        ),
        resize: (columns, rows) => void sizes.push(`${columns}x${rows}`),
        kill(signal = 'SIGTERM') {
          try {
            process.kill(-child.pid!, signal as NodeJS.Signals);
          } catch {
            // It has ended.
          }
        },
      };
    },
  };
}
