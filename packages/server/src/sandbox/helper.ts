import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { callArguments, helperScript } from './helper-script.ts';
import { started } from './started.ts';

export const PERL = '/usr/bin/perl';
const ANSWER_MS = 5_000;

/** In the environment of a helper: whose it is. */
export const HELPER_VARIABLE = 'BERTH_HELPER';

/** Why there is no helper here; null when there is one. */
export function missingHelper(perl: string): string | null {
  if (!callArguments) return `It is not known how on ${process.arch}.`;
  return existsSync(perl) ? null : `${perl} is missing: apt-get install -y perl-base.`;
}

/** What is heard of an order when the helper ended before it had said all. */
export const HELPER_ENDED = 'the helper ended';

/** Beyond these a mount takes the longer way: each of them is a process, if a small one. */
const MOUNTERS_MAX = 8;

interface Waiting {
  child: ChildProcess;
  isBound: boolean;
  hear(said: string): void;
}

export interface HelperOrder {
  /** Of the helper. */
  pid: number;
  first: Promise<string>;
  /** Lets a launch go on, with its limits (`limitValue`), or not. */
  add(word: 'taken' | 'dropped', value?: string): void;
  /** No more lines are listened to. */
  end(): void;
}

/**
 * A small process that does what Node cannot, or could only by a process that is forked of the whole service, which takes
 * longer the larger the service is. It is started once, waits for orders, and ends with the service.
 */
export class Helper {
  private readonly perl: string;
  private readonly name: string;
  private readonly answerMs: number;
  #child: ChildProcess | null = null;
  #next = 1;
  readonly #waiting = new Map<number, Waiting>();

  /** `name`: of the installation, by which its helper is found among the processes of a host. */
  constructor(perl: string, name: string, answerMs = ANSWER_MS) {
    this.perl = perl;
    this.name = name;
    this.answerMs = answerMs;
  }

  /** Starts it, so that the first order need not wait for it. */
  begin(): ChildProcess {
    if (this.#child) return this.#child;
    const child = started(
      spawn(this.perl, ['-e', helperScript, String(process.pid), ...callArguments!], {
        env: { LC_ALL: 'C', [HELPER_VARIABLE]: this.name },
        cwd: '/',
        // A session of its own: a key pressed in the service's terminal ends the service in order, which needs it until then.
        detached: true,
        stdio: ['pipe', 'pipe', 'ignore'],
      }),
    );
    this.#child = child;
    child.stdin!.on('error', () => undefined);
    createInterface(child.stdout!).on('line', (line) => {
      const [, number, said = ''] = /^(\d+) (.*)$/.exec(line) ?? [];
      this.#waiting.get(Number(number))?.hear(said);
    });
    // One that could not be started tells that it never began, and not that it ended.
    for (const end of ['exit', 'error']) child.once(end, () => this.#forget(child));
    // It must not hold the service.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as { unref?: () => void }).unref?.();
    return child;
  }

  /** Says how many mounts are expected by now, so that for them, up to a few, a process is there and waits. */
  expectMounts(count: number): void {
    const input = this.#child?.stdin;
    if (input?.writable) input.write(`0 mounters ${Math.min(count, MOUNTERS_MAX)}\n`);
  }

  /** Resolves with `ok`, or with what went wrong. The values must have no blanks. */
  ask(order: 'mount' | 'move', values: (string | number)[]): Promise<string> {
    const { first, end } = this.order(order, values);
    return first.finally(end);
  }

  /**
   * An order that is answered by several lines. `first` resolves with the first of them, and when none comes in time, the
   * helper is given up; `onLine` is called with each, also with one that says that there are no more, since the helper ended.
   * What comes of one that `isBound` ends with the helper.
   */
  order(
    order: 'mount' | 'move' | 'launch',
    values: (string | number)[],
    onLine: (said: string) => void = () => undefined,
    isBound = false,
  ): HelperOrder {
    const child = this.begin();
    const number = this.#next++;
    const end = (): void => void this.#waiting.delete(number);
    const first = new Promise<string>((resolve) => {
      const timer = setTimeout(() => {
        resolve('no answer');
        onLine('failed no answer');
        this.#giveUp(child, number);
      }, this.answerMs);
      const hear = (said: string): void => {
        clearTimeout(timer);
        resolve(said);
        onLine(said);
      };
      this.#waiting.set(number, { child, isBound, hear });
      child.stdin!.write(`${number} ${order} ${values.join(' ')}\n`);
    });
    const add = (word: string, value = ''): void => void child.stdin!.write(`${number} ${word} ${value}\n`);
    return { pid: child.pid ?? 0, first, add, end };
  }

  /**
   * It stands still, or is slow: the next order is for another one. What it has not read is never done, unless something
   * would end with it that somebody uses: then it is left, and ends with the service.
   */
  #giveUp(child: ChildProcess, number: number): void {
    if (this.#child === child) this.#child = null;
    const others = [...this.#waiting].filter(([other, of]) => other !== number && of.child === child);
    if (others.some(([, { isBound }]) => isBound)) return;
    this.#forget(child);
    child.kill('SIGKILL');
  }

  #forget(child: ChildProcess): void {
    if (this.#child === child) this.#child = null;
    const all = [...this.#waiting].filter(([, of]) => of.child === child);
    for (const [number] of all) this.#waiting.delete(number);
    for (const [, { hear }] of all) hear(HELPER_ENDED);
  }

  close(): void {
    this.#child?.stdin?.end();
  }
}

/** A path as an order names it. */
export const hex = (path: string): string => Buffer.from(path).toString('hex');
