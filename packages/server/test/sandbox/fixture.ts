import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type {
  BlankSpec,
  RunningSandbox,
  SandboxDriver,
  SandboxExit,
  SandboxSpec,
} from '../../src/domain/ports/sandbox.ts';
import { newId } from '../../src/domain/ids.ts';
import { createBubblewrap, type BubblewrapOptions } from '../../src/sandbox/bubblewrap.ts';
import { LocalSandbox } from '../../src/sandbox/running.ts';
import { silentLog } from '../support/log.ts';

export const MIB = 1024 * 1024;
export const usualLimits = { memoryBytes: 256 * MIB, cpus: 1, pids: 64, diskBytes: 64 * MIB, openFiles: 256 };
/** For what fills all memory, which takes its time; a kernel in user space has room in it too. */
export const littleMemory = { ...usualLimits, memoryBytes: 96 * MIB };
export const isRoot = process.getuid?.() === 0;

export interface Outcome {
  exit: SandboxExit;
  stdout: string;
  stderr: string;
}

export interface Fixture {
  driver: SandboxDriver;
  folder: string;
  name: string;
  areaDir: string;
  /** A specification with small limits; `slot` also chooses the volume. */
  spec(command: string[], changes?: Partial<SandboxSpec>): SandboxSpec;
  /** Runs `sh -c script` to its end; it is killed after 30 s. */
  run(script: string, changes?: Partial<SandboxSpec>): Promise<Outcome>;
  start(script: string, changes?: Partial<SandboxSpec>): Promise<RunningSandbox>;
  close(): Promise<void>;
}

export interface DriverPlace {
  areaDir: string;
  /** Names the installation on the host. */
  name: string;
}

/** A bubblewrap driver in a folder of its own; `areaDir` and `name` make it the next service of another fixture. */
export function fixture(options: Partial<BubblewrapOptions> = {}): Fixture {
  const { areaDir, name } = options;
  return driverFixture((place) => createBubblewrap({ ...place, log: silentLog, ...options }), {
    ...(areaDir === undefined ? {} : { areaDir }),
    ...(name === undefined ? {} : { name }),
  });
}

/** A driver in a folder of its own, whose sandboxes, volumes and cgroups are gone after `close`. */
export function driverFixture(
  make: (place: DriverPlace) => SandboxDriver,
  place: Partial<DriverPlace> = {},
): Fixture {
  const folder = mkdtempSync(join(tmpdir(), 'berth-sbx-'));
  // The sandboxes' users must be able to enter.
  chmodSync(folder, 0o711);
  const name = place.name ?? `test-${newId().slice(-12)}`;
  const areaDir = place.areaDir ?? join(folder, 'area');
  const driver = make({ areaDir, name });
  const volumes = new Set<string>();

  function spec(command: string[], changes: Partial<SandboxSpec> = {}): SandboxSpec {
    const id = changes.id ?? newId();
    const slot = changes.slot ?? 1;
    const made = {
      id,
      slot,
      volumeDir: join(folder, `volume-${slot}`),
      runDir: join(folder, `run-${id}`),
      binds: [],
      command,
      env: { PATH: '/usr/bin:/bin', HOME: '/home/agent' },
      limits: usualLimits,
      detached: false,
      transparentEgress: false,
      ...changes,
    };
    volumes.add(made.volumeDir);
    mkdirSync(made.runDir, { recursive: true, mode: 0o700 });
    return made;
  }

  const start: Fixture['start'] = (script, changes) => driver.start(spec(['/bin/sh', '-c', script], changes));

  return {
    driver,
    folder,
    name,
    areaDir,
    spec,
    start,
    run: async (script, changes) => collect(await start(script, changes)),
    async close() {
      for (const id of await driver.list()) await driver.remove(id);
      for (const volume of volumes) await driver.removeVolume(volume);
      await driver.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Host pids of everything in a sandbox of this host. */
export function pidsOf(sandbox: RunningSandbox): number[] {
  if (!('pids' in sandbox) || typeof sandbox.pids !== 'function')
    throw new Error('The driver of this sandbox tells no pids.');
  return sandbox.pids() as number[];
}

/** Zombies count as ended. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

export function local(sandbox: RunningSandbox): LocalSandbox {
  if (!(sandbox instanceof LocalSandbox)) throw new Error('This sandbox is not of a local driver.');
  return sandbox;
}

export async function collect(sandbox: RunningSandbox, timeoutMs = 120_000): Promise<Outcome> {
  const stdout = text(sandbox.stdout);
  const stderr = text(sandbox.stderr);
  const timer = setTimeout(() => void sandbox.kill(), timeoutMs);
  const exit = await sandbox.exited;
  clearTimeout(timer);
  return { exit, stdout: await stdout, stderr: await stderr };
}

/** Resolves with what came on a stream once a line satisfies `test`. */
export async function lineOf(stream: Readable, test: (line: string) => boolean): Promise<string> {
  let rest = '';
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    rest += String(chunk);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    const found = lines.find(test);
    if (found !== undefined) return found;
  }
  throw new Error('The stream ended without the line.');
}

async function text(stream: NodeJS.ReadableStream): Promise<string> {
  let all = '';
  for await (const chunk of stream) all += String(chunk);
  return all;
}

/**
 * Waits as a blank sandbox must, and then becomes the program that the launch data names. Perl, since that is there and starts
 * in no time.
 */
const waiter = `
my $head = ''; my $body = '';
while ($head !~ /\\n$/) { sysread(STDIN, $head, 1, length $head) or exit 75 }
my ($bytes, $count) = split ' ', $head;
while (length $body < $bytes) { sysread(STDIN, $body, $bytes - length $body, length $body) or exit 75 }
my @fields = split /\\0/, $body, -1;
my @command = splice @fields, 0, $count;
%ENV = map { split /=/, $_, 2 } @fields;
chdir '/workspace' or die;
exec { $command[0] } @command or do { print STDERR "$command[0]: $!\\n"; exit 127 };
`;

/** What is known of a sandbox before it is known whose it will be. */
export function blankSpec({ id, runDir, binds, limits, detached }: SandboxSpec): BlankSpec {
  return { id, runDir, binds, limits, detached, command: ['/usr/bin/perl', '-e', waiter], env: {} };
}

/** A driver whose every start takes a blank sandbox that was made for it, where the specification allows that. */
export function pooled(driver: SandboxDriver, onStart?: (isClaimed: boolean) => void): SandboxDriver {
  const start = async (spec: SandboxSpec): Promise<RunningSandbox> => {
    if (spec.transparentEgress) return driver.start(spec);
    const blank = await driver.prepare(blankSpec(spec));
    const claimed = await blank.claim(spec);
    onStart?.(claimed !== null);
    // As the runtime does: what it cannot be, one that is started for it is.
    return claimed ?? driver.start(spec);
  };
  return new Proxy(driver, {
    get: (target, name) => {
      if (name === 'start') return start;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

export function pooledFixture(
  options: Partial<BubblewrapOptions> = {},
  onStart?: (isClaimed: boolean) => void,
): Fixture {
  const { areaDir, name } = options;
  return driverFixture(
    (place) => pooled(createBubblewrap({ ...place, log: silentLog, ...options }), onStart),
    {
      ...(areaDir === undefined ? {} : { areaDir }),
      ...(name === undefined ? {} : { name }),
    },
  );
}

let pool: Promise<string | false> | undefined;

/** Why no sandbox can be made before its agent: it takes root, and a file system of volumes that the kernel maps ids of. */
export function poolMissing(): Promise<string | false> {
  return (pool ??= lookForPool());
}

async function lookForPool(): Promise<string | false> {
  if (!isRoot) return 'only root has a warm pool';
  const fx = fixture();
  try {
    const { warmPool } = await fx.driver.capabilities();
    return warmPool ? false : 'the file system of temporary files, or this host, allows no warm pool';
  } finally {
    await fx.close();
  }
}
