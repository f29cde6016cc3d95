import { spawn, type ChildProcessByStdio, type StdioOptions } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { fds } from './launch-args.ts';
import { started } from './started.ts';
import type { SandboxUser } from './volume.ts';

export type Child = ChildProcessByStdio<Writable, Readable, Readable>;

export interface Launched {
  child: Child;
  /** Host pid of the sandbox's own init, once its namespaces exist; its program does not run before `release`. */
  initPid: Promise<number>;
  release(): void;
  /** Kills what there is and resolves with what bwrap wrote to standard error: its own words name the cause. */
  abort(): Promise<string>;
}

export interface LaunchRequest {
  bwrap: string;
  /** NUL-separated, see `launchArguments`. */
  args: Buffer;
  command: string[];
  /** Stands in the command line, so that a later service process finds what an earlier one left. */
  mark: string;
  filterFile: string;
  user: SandboxUser;
  /** Descriptors of the service that would leak into the sandbox, see `inheritedDescriptors`. */
  leaking: number[];
}

export const MARK_VARIABLE = 'BERTH_SANDBOX';

/** Starts bwrap and stops it right before the sandbox's program, so that limits can be set without a race. */
export function launch(request: LaunchRequest): Launched {
  const filter = openSync(request.filterFile, 'r');
  try {
    const child = started(
      spawn(request.bwrap, commandLine(request), {
        env: {},
        cwd: '/',
        ...request.user,
        stdio: stdio(filter, request.leaking),
      }) as Child,
    );
    const pipe = (fd: number): NodeJS.ReadWriteStream => child.stdio[fd] as unknown as NodeJS.ReadWriteStream;
    for (const fd of [fds.args, fds.info, fds.block]) pipe(fd).on('error', () => {});
    pipe(fds.args).end(request.args);
    let isReleased = false;
    // Read no earlier, since this stream is the sandbox's later; and no later, since Node then lets the rest flow away.
    const said = new Promise<string>((resolve) => {
      child.once('error', () => resolve(''));
      child.once('exit', () => resolve(isReleased ? '' : readAll(child.stderr)));
    });
    return {
      child,
      initPid: readInitPid(child, pipe(fds.info)),
      release: () => {
        isReleased = true;
        pipe(fds.block).end('x');
      },
      abort: () => {
        child.kill('SIGKILL');
        return said;
      },
    };
  } finally {
    closeSync(filter);
  }
}

/** The mark is set before the other arguments, whose `--clearenv` takes it out of the sandbox's environment again. */
function commandLine(request: LaunchRequest): string[] {
  const closeLeaking = request.leaking.flatMap((fd) => (isOurs(fd) ? [] : ['--args', String(fd)]));
  const args = ['--args', String(fds.args)];
  return ['--setenv', MARK_VARIABLE, request.mark, ...closeLeaking, ...args, '--', ...request.command];
}

/** Leaking descriptors are covered with /dev/null, which bwrap reads as a list of no arguments and then closes. */
function stdio(filter: number, leaking: number[]): StdioOptions {
  const list: (number | 'pipe' | 'ignore')[] = ['pipe', 'pipe', 'pipe', 'pipe', filter, 'pipe', 'pipe'];
  for (const fd of leaking) {
    if (isOurs(fd)) continue;
    while (list.length < fd) list.push('ignore');
    list[fd] = devNull();
  }
  return list;
}

const isOurs = (fd: number): boolean => fd <= fds.block;

let devNullFd: number | null = null;
function devNull(): number {
  return (devNullFd ??= openSync('/dev/null', 'r'));
}

/** The information is JSON that arrives in several writes. */
function readInitPid(child: Child, info: NodeJS.ReadWriteStream): Promise<number> {
  const found = new Promise<number>((resolve, reject) => {
    let text = '';
    info.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const pid = /"child-pid":\s*(\d+)\b[^]*\}/.exec(text)?.[1];
      if (pid) resolve(Number(pid));
    });
    child.once('error', reject);
    child.once('exit', (code, signal) => reject(new Error(`bwrap ended with ${signal ?? code}.`)));
  });
  // Whoever launched may have failed before it waits for this.
  found.catch(() => {});
  return found;
}

async function readAll(stream: Readable): Promise<string> {
  let text = '';
  try {
    for await (const chunk of stream) text += String(chunk);
  } catch {
    // The stream was closed with its process; what was read until then is what there is.
  }
  return text.slice(0, 2000);
}
