import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';

const SCRIPT = join(import.meta.dirname, 'rootfs.sh');
/** Also what one that was killed had begun. Those of earlier versions had other names: theirs may still be in use. */
const OURS = /^berth-test-rootfs-[0-9a-f]{16}\.tar(?:\.\d+)?$/;
/** Another run may have one in hand that is younger than this. */
const KEPT_MS = 6 * 3_600_000;

/** Writes the root directory to the file, whole or not at all. */
export type MakeRootfs = (file: string) => void;

/**
 * The file with the root directory of the test image, made once for this machine and these programs and kept in the folder. It is
 * named by what goes into it, so that a fresh installation of the same uses it again; what nobody has used for hours is removed.
 */
export function rootfs(
  folder: string,
  sources = [SCRIPT, '/bin/sh', process.execPath],
  make: MakeRootfs = makeByScript,
): string {
  const hash = createHash('sha256');
  for (const path of sources) hash.update(createHash('sha256').update(readFileSync(path)).digest());
  const name = `berth-test-rootfs-${hash.digest('hex').slice(0, 16)}.tar`;
  const file = join(folder, name);
  if (!use(file)) make(file);
  for (const other of readdirSync(folder)) {
    if (other !== name && OURS.test(other)) removeOld(join(folder, other));
  }
  return file;
}

/** Says to the others that it is in use. False: it is not there. */
function use(file: string): boolean {
  const now = new Date();
  try {
    utimesSync(file, now, now);
    return true;
  } catch {
    return false;
  }
}

function removeOld(file: string): void {
  const { mtimeMs } = statSync(file, { throwIfNoEntry: false }) ?? {};
  if (mtimeMs !== undefined && Date.now() - mtimeMs > KEPT_MS) rmSync(file, { force: true });
}

function makeByScript(file: string): void {
  const made = spawnSync('/bin/sh', [SCRIPT, file, process.execPath], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`The root directory could not be made: ${made.stderr}`);
}
