import { closeSync, constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { constants as system } from 'node:os';
import type { Host } from './begin.ts';
import { HELPER_ENDED, hex, type HelperOrder } from './helper.ts';
import {
  closedStreams,
  commandLine,
  openFiles,
  wordsOf,
  type Launched,
  type LaunchRequest,
  type OpenFiles,
  type Streams,
} from './launch.ts';
import type { MonitorEnd } from './monitor.ts';
import { endMarked, gone, killKnown, processOf, type KnownProcess } from './processes.ts';
import { limitValue, processValues, type LimitedProcesses, type Rlimits } from './rlimits.ts';

/** For bwrap to be started and to make its namespaces, on a machine that is busy. */
const BEGIN_MS = 30_000;
/** To set the limits, once bwrap has made them. */
const LIMIT_MS = 5_000;
/** For a process that was killed. */
const GONE_MS = 10_000;

/**
 * As `launch`, and the limits are set by the way; but nothing is forked of the service, which takes the longer the larger it
 * is, and holds its event loop meanwhile. Resolves once the first process of the sandbox is known, or bwrap has ended; with
 * null where there is no helper, or that failed, or what is made ready: then nothing is left of it. `ready` is called while the
 * helper forks, and bwrap does not begin before it has resolved.
 */
export async function launchByHelper(
  { helper, cgroups }: Pick<Host, 'helper' | 'cgroups'>,
  request: LaunchRequest,
  processes: LimitedProcesses,
  ready: () => Promise<Rlimits>,
  beginMs = BEGIN_MS,
): Promise<Launched | null> {
  if (!helper) return null;
  const files = openFiles(request);
  const own = cgroups.own !== null && cgroups.hierarchies.length > 0 ? hex(cgroups.own) : '-';
  const heard = new Heard(beginMs);
  const streams: Socket[] = [];
  let order: HelperOrder | null = null;
  let monitor: KnownProcess | null = null;
  try {
    const hear = (said: string): void => heard.line(said);
    // See `launchArguments`: one that is not detached ends with its parent.
    const isBound = request.detached === null;
    order = helper.order('launch', values(request, processes, own, files), hear, isBound);
    const limits = ready();
    limits.catch(() => undefined);
    void heard.ended.then(order.end);
    const { pid, fds } = await heard.started;
    monitor = processOf(pid);
    for (const fd of fds) {
      const isInput = streams.length === 0 && hasInput(request);
      streams.push(openPipe(`/proc/${order.pid}/fd/${fd}`, isInput));
    }
    // However long that takes, which is no fault of the helper.
    const limit = limitValue(await limits);
    heard.expect(beginMs);
    order.add('taken', limit);
    await heard.begun;
    return launchedOf(request, heard, monitor, streams);
  } catch {
    order?.add('dropped');
    for (const stream of streams) stream.destroy();
    // Before it is bwrap it has no mark.
    if (monitor) {
      killKnown(monitor);
      await gone(monitor.pid, monitor.since, GONE_MS);
    }
    await endMarked(request.mark);
    return null;
  } finally {
    for (const fd of Object.values(files)) if (fd !== null) closeSync(fd);
  }
}

const hasInput = ({ detached, isBlank }: LaunchRequest): boolean => detached === null || isBlank;

/** See the script: its descriptors stand in the order of `fds`. */
function values(
  request: LaunchRequest,
  processes: LimitedProcesses,
  own: string,
  files: OpenFiles,
): string[] {
  const output = files.log === null ? 'out' : `a:${files.log}`;
  return [
    hex(request.bwrap),
    request.detached ? '1' : '0',
    hex([request.bwrap, ...commandLine({ ...request, leaking: [] })].join('\0')),
    request.args.toString('hex'),
    own,
    ...processValues(processes),
    ...[hasInput(request) ? 'in' : 'null', output, output],
    ...['data', `r:${files.filter}`, 'info', `rw:${request.gate.fd}`],
    ...(files.status === null ? [] : [`a:${files.status}`]),
  ];
}

/** A pipe has no half that could be shut down: its writer ends by being closed. */
class PipeInput extends Socket {
  override _final(callback: (error?: Error | null) => void): void {
    callback();
  }
}

/** The other end of it is open, so that nothing is waited for. */
function openPipe(path: string, isInput: boolean): Socket {
  const fd = openSync(path, (isInput ? constants.O_WRONLY : constants.O_RDONLY) | constants.O_NONBLOCK);
  if (isInput) return new PipeInput({ fd, readable: false, writable: true });
  return new Socket({ fd, readable: true, writable: false });
}

function launchedOf(request: LaunchRequest, heard: Heard, monitor: KnownProcess, open: Socket[]): Launched {
  const input = hasInput(request) ? open[0]! : null;
  const streams: Streams = request.detached
    ? closedStreams()
    : { stdin: open[0]!, stdout: open[1]!, stderr: open[2]! };
  let isReleased = false;
  // As of a child of Node: what nobody reads flows away when it has ended, and its words are read no later.
  const said = heard.ended.then(async () => {
    const words = isReleased ? '' : await wordsOf(request, streams);
    input?.destroy();
    for (const stream of open) stream.resume();
    return words;
  });
  return {
    monitorPid: monitor.pid,
    ended: heard.ended,
    streams,
    input,
    initPid: heard.init,
    limited: heard.limited,
    apart: heard.apart,
    release: () => {
      isReleased = true;
      request.gate.open();
    },
    abort: () => {
      killKnown(monitor);
      return said;
    },
  };
}

/** What the helper says of a launch, line by line. */
class Heard {
  readonly #started = Promise.withResolvers<{ pid: number; fds: number[] }>();
  readonly #init = Promise.withResolvers<number>();
  readonly #begun = Promise.withResolvers<void>();
  readonly #limited = Promise.withResolvers<string>();
  readonly #apart = Promise.withResolvers<string>();
  readonly #ended = Promise.withResolvers<MonitorEnd | null>();
  readonly started = this.#started.promise;
  /** Resolves when the first process is known, or bwrap has ended; rejects when the helper failed. */
  readonly begun = this.#begun.promise;
  /** Rejects when it is never known. */
  readonly init = this.#init.promise;
  readonly limited = this.#limited.promise;
  readonly apart = this.#apart.promise;
  readonly ended = this.#ended.promise;
  #hasLimited = false;

  #timer: NodeJS.Timeout | undefined;
  #failed: Error | null = null;

  /** `startMs`: for `started`. Also when the helper stands still after a first word, by its child: then nobody else waits for it. */
  constructor(startMs: number) {
    this.expect(startMs);
    const stop = (): void => clearTimeout(this.#timer);
    this.started.then(stop, stop);
    this.begun.then(stop, stop);
    // Whoever waits for one of them need not come to the others.
    for (const promise of [this.started, this.init]) promise.catch(() => undefined);
  }

  /** Gives up unless it has begun in time. Throws when it was given up before. */
  expect(beginMs: number): void {
    if (this.#failed) throw this.#failed;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fail('no answer'), beginMs);
  }

  line(said: string): void {
    const [word = '', ...values] = said.split(' ');
    const numbers = values.map(Number);
    if (said === HELPER_ENDED) this.#lose();
    else if (word === 'started' && numbers[0]! > 1)
      this.#started.resolve({ pid: numbers[0]!, fds: numbers.slice(1) });
    else if (word === 'init' && numbers[0]! > 1) this.#know(numbers[0]!);
    else if (word === 'exit') this.#end(numbers[0]!);
    else if (word === 'failed') this.#fail(said);
    else if (word === 'gone') {
      const reason = 'what sets the limits was ended';
      if (this.#hasLimited) this.#apart.resolve(reason);
      else this.#fail(reason);
    } else {
      this.#hasLimited = true;
      this.#limited.resolve(said === 'limited' ? 'ok' : said);
      if (said !== 'limited') this.#apart.resolve(said);
    }
  }

  #know(initPid: number): void {
    this.#init.resolve(initPid);
    this.started.then(() => this.#begun.resolve()).catch(() => undefined);
    const timer = setTimeout(() => this.#answer('no answer'), LIMIT_MS);
    void this.apart.then(() => clearTimeout(timer));
  }

  /** `status` as of wait(2). */
  #end(status: number): void {
    const number = status & 127;
    const signal = Object.entries(system.signals).find(([, value]) => value === number)?.[0] ?? null;
    const code = number === 0 ? status >> 8 : null;
    this.#init.reject(new Error(`bwrap ended with ${signal ?? code}.`));
    this.#begun.resolve();
    // It is nowhere any more.
    this.#apart.resolve('ok');
    this.#answer('bwrap ended');
    this.#ended.resolve({ code, signal });
  }

  #lose(): void {
    this.#fail(HELPER_ENDED);
    this.#ended.resolve(null);
  }

  #fail(reason: string): void {
    const error = new Error(reason);
    this.#failed ??= error;
    for (const { reject } of [this.#started, this.#init, this.#begun]) reject(error);
    this.#answer(reason);
  }

  #answer(reason: string): void {
    this.#limited.resolve(reason);
    this.#apart.resolve(reason);
  }
}
