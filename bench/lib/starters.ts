import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { fixture, MIB } from '../../packages/server/test/sandbox/fixture.ts';

/** A program that runs: it wrote one byte when it had started, and writes back what it gets. */
export interface Running {
  stdin: Writable;
  stdout: Readable;
  /** Resolves when nothing of it is left. */
  kill(): Promise<void>;
  /** Stands still, and goes on; null where there is no such thing. */
  freeze: (() => Promise<void>) | null;
  thaw: (() => Promise<void>) | null;
}

/** A way to start a Node program. */
export interface Starter {
  name: string;
  /** Resolves after the program's first byte. */
  start(): Promise<Running>;
  end(): Promise<void>;
}

export const echoProgram =
  "process.stdout.write('.');process.stdin.on('data',(data)=>process.stdout.write(data))";

/** Writes a line and waits for it to come back. */
export async function roundTripMs({ stdin, stdout }: Running): Promise<number> {
  const startMs = performance.now();
  stdin.write('x\n');
  await once(stdout, 'data');
  return performance.now() - startMs;
}

export function runningChild(child: ChildProcess): Running {
  const closed = once(child, 'close');
  return {
    stdin: child.stdin!,
    stdout: child.stdout!,
    async kill() {
      child.kill('SIGKILL');
      await closed;
    },
    freeze: null,
    thaw: null,
  };
}

/** No sandbox at all. */
export function bareStarter(): Starter {
  return {
    name: 'a bare process',
    async start() {
      const child = spawn(process.execPath, ['-e', echoProgram], {
        env: { PATH: '/usr/bin:/bin' },
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      const running = runningChild(child);
      await once(child.stdout, 'data');
      return {
        ...running,
        freeze: async () => void child.kill('SIGSTOP'),
        thaw: async () => void child.kill('SIGCONT'),
      };
    },
    end: async () => undefined,
  };
}

/** What an agent gets by default (docs/configuration.md), but for its disk, which nothing here writes to. */
const limits = { memoryBytes: 1024 * MIB, cpus: 1, pids: 256, diskBytes: 256 * MIB, openFiles: 4096 };
const NODE_INSIDE = '/opt/node';

/** Berth's own driver, hardened as for every agent. */
export function berthStarter(): Starter {
  const made = fixture();
  const binds = [{ hostPath: process.execPath, path: NODE_INSIDE }];
  let slot = 0;
  return {
    name: 'Berth',
    async start() {
      slot += 1;
      const spec = made.spec([NODE_INSIDE, '-e', echoProgram], { slot, binds, limits });
      const sandbox = await made.driver.start(spec);
      await once(sandbox.stdout, 'data');
      return {
        stdin: sandbox.stdin,
        stdout: sandbox.stdout,
        kill: async () => void (await sandbox.kill()),
        freeze: () => sandbox.freeze(),
        thaw: () => sandbox.thaw(),
      };
    },
    end: () => made.close(),
  };
}
