import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { compileCache } from './service.ts';

const bin = fileURLToPath(new URL('../../../cli/bin/berth.mjs', import.meta.url));

export interface BerthRun {
  child: ChildProcess;
  /** What it wrote so far. */
  stdout: () => string;
  stderr: () => string;
  ended: Promise<{ code: number | null; stdout: string; stderr: string }>;
}

export interface BerthOptions {
  cwd?: string;
  env?: Record<string, string>;
  stdin?: string;
  /** Standard input is not ended: more is written to it later. */
  isOpen?: boolean;
}

/** The command line as a user has it, with a home of its own, so that no stored key of the machine plays a part. */
export function berthIn(home: string, common: Record<string, string> = {}) {
  return (args: string[], options: BerthOptions = {}): BerthRun => {
    const child = spawn(process.execPath, [bin, ...args], {
      cwd: options.cwd ?? home,
      env: {
        PATH: process.env['PATH'] ?? '/usr/bin:/bin',
        HOME: home,
        GIT_CONFIG_NOSYSTEM: '1',
        LC_ALL: 'C',
        ...compileCache(),
        ...common,
        ...options.env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.stdin.on('error', () => undefined);
    if (!options.isOpen) child.stdin.end(options.stdin ?? '');
    const timer = setTimeout(() => child.kill('SIGKILL'), 90_000);
    const ended = new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
      child.once('close', (code) => {
        clearTimeout(timer);
        resolve({ code, stdout, stderr });
      });
    });
    return { child, stdout: () => stdout, stderr: () => stderr, ended };
  };
}
