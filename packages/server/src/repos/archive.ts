import { randomBytes } from 'node:crypto';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { RepoError } from '../domain/ports/repos.ts';
import { ByteReader } from './byte-reader.ts';
import { endOfGit, killGit, runGit, spawnGit } from './git-process.ts';
import type { RepoLimits } from './repo-limits.ts';
import { tarEnd, tarHeader, tarPadding } from '../domain/tar.ts';
import { listTree, type TreeEntry } from './tree-list.ts';

type Limits = Pick<RepoLimits, 'archiveEntries' | 'archiveBytes' | 'pathBytes'>;
const flushBytes = 256 * 1024;

/**
 * Writes a commit's tree as a tar archive: the exact blobs, from `ls-tree` and `cat-file`. `git archive` is not used,
 * because the tree's own .gitattributes may leave files out there (export-ignore) or change them (export-subst, text
 * conversion). A submodule becomes an empty directory; nothing is fetched for it.
 */
export async function writeTreeArchive(
  gitDir: string,
  commit: string,
  targetPath: string,
  limits: Limits,
): Promise<void> {
  const entries = await listTree(gitDir, commit, limits);
  const mtimeSeconds = await commitTime(gitDir, commit);
  const aside = `${targetPath}.${randomBytes(6).toString('hex')}`;
  try {
    const file = await open(aside, 'wx', 0o644);
    try {
      await writeEntries(gitDir, entries, file, mtimeSeconds);
      // The umask of the service must not hide the archive from the sandbox's user.
      await file.chmod(0o644);
    } finally {
      await file.close();
    }
    await rename(aside, targetPath);
  } catch (error) {
    await rm(aside, { force: true });
    throw error;
  }
}

async function writeEntries(
  gitDir: string,
  entries: TreeEntry[],
  file: FileHandle,
  mtimeSeconds: number,
): Promise<void> {
  const blobs = entries.filter((entry) => entry.kind !== 'directory');
  const child = spawnGit(['cat-file', '--batch', '--buffer'], { gitDir, timeoutMs: 5 * 60_000 });
  const ended = endOfGit(child);
  child.stderr.resume();
  Readable.from(blobs.map((entry) => `${entry.id}\n`)).pipe(child.stdin);
  const reader = new ByteReader(child.stdout);
  const out = new BufferedFile(file);
  try {
    for (const entry of entries) {
      const meta = { path: entry.path, mtimeSeconds };
      if (entry.kind === 'directory') {
        await out.write(
          tarHeader({ ...meta, kind: 'directory', mode: 0o755, sizeBytes: 0, target: Buffer.alloc(0) }),
        );
        continue;
      }
      const header = await reader.until('\n', 4096);
      if (header !== `${entry.id} blob ${entry.sizeBytes}`)
        throw new RepoError('The commit is not complete.');
      if (entry.kind === 'symlink') {
        const target = await reader.bytes(entry.sizeBytes);
        await out.write(tarHeader({ ...meta, kind: 'symlink', mode: 0o777, sizeBytes: 0, target }));
      } else {
        const { sizeBytes } = entry;
        const mode = entry.executable ? 0o755 : 0o644;
        await out.write(tarHeader({ ...meta, kind: 'file', mode, sizeBytes, target: Buffer.alloc(0) }));
        for await (const piece of reader.take(entry.sizeBytes)) await out.write(piece);
        await out.write(tarPadding(entry.sizeBytes));
      }
      await reader.bytes(1);
    }
    await out.write(tarEnd);
    await out.flush();
  } finally {
    killGit(child);
    await ended;
  }
}

async function commitTime(gitDir: string, commit: string): Promise<number> {
  const args = ['show', '--no-patch', '--no-show-signature', '--format=%ct', '--end-of-options', commit];
  const result = await runGit(args, { gitDir, timeoutMs: 20_000 });
  const seconds = Number(result.stdout.toString('latin1').trim());
  // Eleven octal digits hold it; a commit may claim any date.
  return Number.isInteger(seconds) && seconds > 0 && seconds < 8 ** 11 ? seconds : 0;
}

/** Joins many small writes. */
class BufferedFile {
  readonly #file: FileHandle;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async write(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    if (this.#heldBytes >= flushBytes) await this.flush();
  }

  async flush(): Promise<void> {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    if (held.length > 0) await this.#file.appendFile(Buffer.concat(held));
  }
}
