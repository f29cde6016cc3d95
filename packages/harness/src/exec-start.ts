import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { constants } from 'node:os';
import type { Readable, Writable } from 'node:stream';
import { killTree, markVariable, signalAll } from './processes.ts';

export interface ExecRequest {
  command: string[];
  env: Record<string, string>;
  cwd?: string;
  terminal?: { columns: number; rows: number };
}

export interface Exit {
  code: number | null;
  signal: string | null;
}

/** A command that runs, with or without a terminal. */
export interface Started {
  input: Writable;
  /** Standard output and standard error; of a terminal one stream that is both. */
  outputs: Readable[];
  exited: Promise<Exit>;
  endInput(): void;
  signal(name: string): void;
  resize(columns: number, rows: number): void;
  /** Ends everything that the command has started. */
  endAll(): void;
}

/** `message` is safe to show. */
export class StartError extends Error {
  readonly code: 'not_found' | 'limit' | 'failed';

  constructor(code: StartError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

/** Starts a command in a process group of its own. Rejects with StartError. */
export async function startCommand(request: ExecRequest & { cwd: string }): Promise<Started> {
  if (!statSync(request.cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new StartError('failed', `cwd: there is no directory ${request.cwd}.`);
  const marked = { ...request, env: { ...request.env, [markVariable]: `exec.${randomUUID()}` } };
  if (request.terminal === undefined) return startPiped(marked);
  const { startInTerminal } = await import('./exec-terminal.ts');
  return startInTerminal({ ...marked, terminal: request.terminal });
}

async function startPiped(request: ExecRequest & { cwd: string }): Promise<Started> {
  const [program = '', ...args] = request.command;
  const { env, cwd } = request;
  const child = spawn(program, args, { cwd, env, stdio: ['pipe', 'pipe', 'pipe'], detached: true });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(startError(program, error)));
  });
  const exited = new Promise<Exit>((resolve) =>
    child.once('exit', (code, signal) => resolve({ code, signal })),
  );
  const pid = child.pid!;
  return {
    input: child.stdin,
    outputs: [child.stdout, child.stderr],
    exited,
    endInput: () => child.stdin.end(),
    ...groupOf(pid, env[markVariable]!, exited),
    resize: () => undefined,
  };
}

export function startError(program: string, error: NodeJS.ErrnoException): StartError {
  if (error.code === 'ENOENT') return new StartError('not_found', `There is no program "${program}".`);
  if (error.code === 'EACCES') return new StartError('failed', `"${program}" may not be executed.`);
  return new StartError('failed', `"${program}" could not be started: ${error.message}.`);
}

/** How all of a command's processes are reached. */
export function groupOf(
  pid: number,
  mark: string,
  exited: Promise<Exit>,
): Pick<Started, 'signal' | 'endAll'> {
  let isGone = false;
  void exited.then(() => (isGone = true));
  return {
    signal(name) {
      if (Object.hasOwn(constants.signals, name) && !isGone) signalAll(pid, mark, name as NodeJS.Signals);
    },
    endAll() {
      void killTree(pid, mark, () => isGone);
    },
  };
}
