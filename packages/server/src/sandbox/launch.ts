import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { PassThrough, Readable, type Writable } from 'node:stream';
import type { Gate } from './gates.ts';
import { fds } from './launch-args.ts';
import { openLog } from './output-log.ts';
import { started } from './started.ts';
import type { MonitorEnd } from './monitor.ts';
import type { SandboxUser } from './volume.ts';

/** The streams of the sandbox's first program. */
export interface Streams {
  stdin: Writable;
  stdout: Readable;
  stderr: Readable;
}

export interface Launched {
  /** Host pid of bwrap outside of the sandbox, which waits for its end. */
  monitorPid: number;
  /** How it ended; null when nobody is left who could tell. */
  ended: Promise<MonitorEnd | null>;
  streams: Streams;
  /** The standard input of the first program, also where nothing else of it is held; null when it has none. */
  input: Writable | null;
  /** Host pid of the sandbox's own init, once its namespaces exist; its program does not run before `release`. */
  initPid: Promise<number>;
  /** Null when whoever launched it does not set its limits. Else `ok` once they are set, or why they are not. */
  limited: Promise<string> | null;
  /**
   * Whether bwrap itself, which may have been born in the sandbox's cgroups, is out of them again: `ok`, or why not. It is
   * known after `release`. Null when it was never in them.
   */
  apart: Promise<string> | null;
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
  /** Before its program. */
  gate: Gate;
  /** Files of a sandbox that outlives the service: its output, and what bwrap tells of its end. */
  detached: { logFile: string; statusFile: string } | null;
  /** Its program waits for launch data (`BlankSpec`), so it has a standard input although it is detached. */
  isBlank: boolean;
}

export const MARK_VARIABLE = 'BERTH_SANDBOX';

/** Starts bwrap and stops it right before the sandbox's program, so that limits can be set without a race. */
export function launch(request: LaunchRequest): Launched {
  const files = openFiles(request);
  try {
    const child = started(
      spawn(request.bwrap, commandLine(request), {
        env: {},
        cwd: '/',
        ...request.user,
        // A session of its own, so that a key pressed in the service's terminal does not end it.
        detached: request.detached !== null,
        stdio: stdio(files, request),
      }),
    );
    const ended = new Promise<MonitorEnd | null>((resolve) => {
      child.once('error', () => resolve(null));
      child.once('exit', (code, signal) => resolve({ code, signal }));
    });
    const pipe = (fd: number): NodeJS.ReadWriteStream => child.stdio[fd] as unknown as NodeJS.ReadWriteStream;
    for (const fd of [fds.args, fds.info]) pipe(fd).on('error', () => {});
    pipe(fds.args).end(request.args);
    let isReleased = false;
    const streams = request.detached ? closedStreams() : (child as Streams & ChildProcess);
    const initPid = readInitPid(child, pipe(fds.info));
    // What fails before it is waited for is told by itself.
    initPid.catch(() => undefined);
    // Read no earlier, since this stream is the sandbox's later; and no later, since Node then lets the rest flow away.
    const said = new Promise<string>((resolve) => {
      child.once('error', () => resolve(''));
      child.once('exit', () => resolve(isReleased ? '' : wordsOf(request, streams)));
    });
    return {
      monitorPid: child.pid ?? 0,
      ended,
      streams,
      input: child.stdin,
      initPid,
      limited: null,
      apart: null,
      release: () => {
        isReleased = true;
        request.gate.open();
        if (request.detached) child.unref();
      },
      abort: () => {
        child.kill('SIGKILL');
        return said;
      },
    };
  } finally {
    for (const fd of Object.values(files)) if (fd !== null) closeSync(fd);
  }
}

export interface OpenFiles {
  filter: number;
  log: number | null;
  status: number | null;
}

export function openFiles({ filterFile, detached }: LaunchRequest): OpenFiles {
  const filter = openSync(filterFile, 'r');
  if (!detached) return { filter, log: null, status: null };
  try {
    return { filter, log: openLog(detached.logFile), status: openSync(detached.statusFile, 'w', 0o600) };
  } catch (error) {
    closeSync(filter);
    throw error;
  }
}

/** Those of a sandbox that nobody holds the ends of. */
export function closedStreams(): Streams {
  const stdin = new PassThrough();
  stdin.end();
  stdin.resume();
  return { stdin, stdout: Readable.from([]), stderr: Readable.from([]) };
}

/** What bwrap said of its end. */
export function wordsOf({ detached }: LaunchRequest, { stderr }: Streams): Promise<string> | string {
  return detached ? textOf(detached.logFile) : readAll(stderr);
}

/** The mark is set before the other arguments, whose `--clearenv` takes it out of the sandbox's environment again. */
export function commandLine(request: LaunchRequest): string[] {
  const own = ownDescriptors(request.detached !== null);
  const closeLeaking = request.leaking.flatMap((fd) => (fd < own ? [] : ['--args', String(fd)]));
  const args = ['--args', String(fds.args)];
  return ['--setenv', MARK_VARIABLE, request.mark, ...closeLeaking, ...args, '--', ...request.command];
}

/** Leaking descriptors are covered with /dev/null, which bwrap reads as a list of no arguments and then closes. */
function stdio({ filter, log, status }: OpenFiles, { leaking, isBlank, gate }: LaunchRequest): StdioOptions {
  const input = log === null || isBlank ? 'pipe' : 'ignore';
  const list: (number | 'pipe' | 'ignore')[] = [
    ...([input, log ?? 'pipe', log ?? 'pipe'] as const),
    ...['pipe' as const, filter, 'pipe' as const, gate.fd],
    ...(status === null ? [] : [status]),
  ];
  const own = list.length;
  for (const fd of leaking) {
    if (fd < own) continue;
    while (list.length < fd) list.push('ignore');
    list[fd] = devNull();
  }
  return list;
}

const ownDescriptors = (isDetached: boolean): number => (isDetached ? fds.status : fds.block) + 1;

let devNullFd: number | null = null;
function devNull(): number {
  return (devNullFd ??= openSync('/dev/null', 'r'));
}

/** The information is JSON that arrives in several writes. */
function readInitPid(child: ChildProcess, info: NodeJS.ReadWriteStream): Promise<number> {
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

/** Nothing when it is gone already. */
function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
