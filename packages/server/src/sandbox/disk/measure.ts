import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { started } from '../started.ts';
import { Slices } from './slices.ts';

/** `bytes`: blocks taken, as counted by the file system. `entries`: files, folders and links. */
export type Unit = 'bytes' | 'entries';

const DU = '/usr/bin/du';
const MEASURE_TIMEOUT_MS = 60_000;
/** Descriptors looked at in one measurement; a sandbox could open hundreds of thousands to keep the service busy. */
const DESCRIPTORS_MAX = 20_000;

/**
 * What lies in the folders. By du(1), in a process of its own: it walks by descriptors, follows no link, counts a file
 * with several names once, and a sandbox that makes a million files keeps du busy and not the event loop.
 */
export async function measure(folders: string[], unit: Unit): Promise<number> {
  const args = [
    '--summarize',
    '--total',
    '--one-file-system',
    ...(unit === 'bytes' ? ['--block-size=1'] : ['--inodes']),
  ];
  const first = await du(args, folders);
  if (first.complete || process.getuid?.() === 0) return first.total;
  // The owner of a folder may close it for itself, and so hide what is in it from a service that is not root.
  const chmod = started(spawn('/bin/chmod', ['-R', 'u+rwX', '--', ...folders], { env: {}, stdio: 'ignore' }));
  await once(chmod, 'close');
  return (await du(args, folders)).total;
}

async function du(args: string[], folders: string[]): Promise<{ total: number; complete: boolean }> {
  const child = started(
    spawn(DU, [...args, '--', ...folders], {
      env: { LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: MEASURE_TIMEOUT_MS,
      killSignal: 'SIGKILL',
    }),
  );
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  const total = /^(\d+)\ttotal$/m.exec(text)?.[1];
  if (total === undefined) throw new Error('The size of the volume could not be measured: du gave no total.');
  return { total: Number(total), complete: code === 0 };
}

/** Bytes of files on the volume's file system that have no name any more but are still open or mapped in the sandbox. */
export async function deletedBytes(
  pids: number[],
  volumeDir: string,
  slices = new Slices(),
): Promise<number> {
  const device = statSync(volumeDir).dev;
  const sizes = new Map<number, number>();
  await slices.each(openPaths(pids), (path) => {
    if (path === null || !linkOf(path)?.endsWith(' (deleted)')) return;
    // These links of /proc lead straight to the open file: nothing is looked up by a name that a sandbox could choose.
    const stat = statSync(path, { throwIfNoEntry: false });
    if (stat?.isFile() && stat.nlink === 0 && stat.dev === device) sizes.set(stat.ino, stat.blocks * 512);
  });
  return sum(sizes);
}

/** Null after each folder that was read, which takes time too. */
function* openPaths(pids: number[]): Generator<string | null> {
  let looked = 0;
  for (const pid of pids) {
    for (const folder of ['fd', 'map_files']) {
      for (const path of namesIn(`/proc/${pid}/${folder}`)) {
        if (++looked > DESCRIPTORS_MAX) return;
        yield path;
      }
      yield null;
    }
  }
}

/** Bytes that the processes wrote to files so far, and not to tmpfs; null when none of them tells (proc_pid_io(5)). */
export async function writtenBytes(pids: number[], slices = new Slices()): Promise<number | null> {
  let total: number | null = null;
  await slices.each(pids, (pid) => {
    try {
      const written = /^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1];
      total = (total ?? 0) + Number(written ?? 0);
    } catch {
      // It ended; what it wrote is counted with its parent.
    }
  });
  return total;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).map((name) => `${folder}/${name}`);
  } catch {
    return [];
  }
}

function linkOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    return null;
  }
}

function sum(sizes: Map<number, number>): number {
  return [...sizes.values()].reduce((total, size) => total + size, 0);
}
