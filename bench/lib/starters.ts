import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { BlankSandbox, SandboxSpec } from '../../packages/server/src/domain/ports/sandbox.ts';
import { isBlank } from '../../packages/server/src/sandbox/disk/image-file.ts';
import { blankSpec, fixture, MIB, type Fixture } from '../../packages/server/test/sandbox/fixture.ts';

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
  /** What is done before somebody wants it. */
  prepare?(): Promise<void>;
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

/** What an agent gets by default (docs/configuration.md), but for the size of its disk, which nothing here writes to. */
const limits = { memoryBytes: 1024 * MIB, cpus: 1, pids: 256, diskBytes: 256 * MIB, openFiles: 4096 };
const NODE_INSIDE = '/opt/node';
const DISK_MS = 30_000;

/** A driver whose agents are watched, or are new each time and get a disk of their own, as by default. */
function driverWith(ownDisks: boolean): {
  made: Fixture;
  ready: () => Promise<void>;
  end: () => Promise<void>;
} {
  if (!ownDisks) {
    const made = fixture();
    return { made, ready: async () => undefined, end: () => made.close() };
  }
  const imagesDir = mkdtempSync(join(tmpdir(), 'berth-bench-disks-'));
  const made = fixture({ disk: { mode: 'image', imagesDir, bytes: limits.diskBytes } });
  return {
    made,
    // One is made before its agent, as in a service.
    async ready() {
      const deadline = performance.now() + DISK_MS;
      const isThere = () =>
        readdirSync(imagesDir).some((name) => isBlank(name) && existsSync(join(imagesDir, name, 'reserve')));
      while (!isThere()) {
        if (performance.now() > deadline)
          throw new Error(`No disk was made in ${imagesDir}: is a tenth of the host's disk free?`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    },
    async end() {
      await made.close();
      rmSync(imagesDir, { recursive: true });
    },
  };
}

/** Berth's own driver, hardened as for every agent. */
export function berthStarter(ownDisks = false): Starter {
  const { made, ready, end } = driverWith(ownDisks);
  const binds = [{ hostPath: process.execPath, path: NODE_INSIDE }];
  let slot = 0;
  return {
    name: 'Berth',
    prepare: () => (slot === 0 ? Promise.resolve() : ready()),
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
    end,
  };
}

/** As packages/harness/src/wait.ts does: Node runs, and waits for its agent. */
const waitingProgram = `
const { readSync } = require('node:fs');
const byte = Buffer.alloc(1);
let head = '';
while (!head.endsWith('\\n')) { if (!readSync(0, byte, 0, 1, null)) process.exit(); head += byte }
const body = Buffer.alloc(parseInt(head));
for (let got = 0; got < body.length;) got += readSync(0, body, got, body.length - got, null);
process.chdir('/workspace');
${echoProgram}`;

/** The same from a pool: what is measured begins when somebody wants it. */
export function poolStarter(ownDisks = false): Starter {
  const { made, ready: diskIsReady, end } = driverWith(ownDisks);
  const binds = [{ hostPath: process.execPath, path: NODE_INSIDE }];
  let slot = 0;
  let ready: { blank: BlankSandbox; spec: SandboxSpec } | null = null;
  return {
    name: 'Berth, from its pool',
    async prepare() {
      slot += 1;
      const spec = made.spec([NODE_INSIDE, '-e', echoProgram], { slot, binds, limits });
      const command = [NODE_INSIDE, '-e', waitingProgram];
      ready = { spec, blank: await made.driver.prepare({ ...blankSpec(spec), command }) };
      // Until Node has started.
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      await diskIsReady();
    },
    async start() {
      if (!ready) throw new Error('It was not prepared.');
      const { blank, spec } = ready;
      const sandbox = await blank.claim(spec);
      if (!sandbox) throw new Error('A sandbox of the pool could not be used.');
      await once(sandbox.stdout, 'data');
      return {
        stdin: sandbox.stdin,
        stdout: sandbox.stdout,
        kill: async () => void (await sandbox.kill()),
        freeze: null,
        thaw: null,
      };
    },
    end,
  };
}
