import { RepoError } from '../domain/ports/repos.ts';
import { endOfGit, killGit, spawnGit } from './git-process.ts';
import type { RepoLimits } from './repo-limits.ts';
import { terminalLine } from './terminal.ts';
import { formatMiB } from './wire-body.ts';

export interface TreeEntry {
  path: Buffer;
  kind: 'file' | 'directory' | 'symlink';
  executable: boolean;
  id: string;
  sizeBytes: number;
}

const maxTargetBytes = 4095;

/**
 * All entries of a commit, checked one by one as git prints them: a tree can name far more files than it has bytes, so
 * the listing ends at the first one too many.
 */
export async function listTree(
  gitDir: string,
  commit: string,
  limits: Pick<RepoLimits, 'archiveEntries' | 'archiveBytes' | 'pathBytes'>,
): Promise<TreeEntry[]> {
  const args = ['ls-tree', '-r', '-z', '-l', '--full-tree', '--end-of-options', commit];
  const child = spawnGit(args, { gitDir, timeoutMs: 60_000 });
  const ended = endOfGit(child);
  child.stderr.resume();
  const entries: TreeEntry[] = [];
  let bytes = 0;
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
      rest = Buffer.concat([rest, chunk]);
      for (let nul = rest.indexOf(0); nul !== -1; nul = rest.indexOf(0)) {
        const entry = parseEntry(rest.subarray(0, nul), limits.pathBytes);
        rest = rest.subarray(nul + 1);
        entries.push(entry);
        bytes += entry.sizeBytes;
        if (entries.length > limits.archiveEntries) {
          throw new RepoError(`The commit has more than ${limits.archiveEntries} files.`);
        }
        if (bytes > limits.archiveBytes) {
          throw new RepoError(
            `The files of the commit are larger than ${formatMiB(limits.archiveBytes)} together.`,
          );
        }
      }
      if (rest.length > 1024 * 1024) throw new RepoError('The commit has a path that is too long.');
    }
    if ((await ended) !== 0) throw new RepoError('The commit cannot be read.');
    return entries;
  } finally {
    killGit(child);
  }
}

/** `<mode> <type> <id> <size>\t<path>` (git-ls-tree, `--long`). */
function parseEntry(line: Buffer, maxPathBytes: number): TreeEntry {
  const tab = line.indexOf(0x09);
  const match = /^(\d{6}) (blob|commit) ([0-9a-f]{40}) +(\d+|-)$/.exec(line.toString('latin1', 0, tab));
  if (!match) throw new RepoError('The commit has an entry of an unknown kind.');
  const path = Buffer.from(line.subarray(tab + 1));
  checkPath(path, maxPathBytes);
  const mode = match[1]!;
  const kind = match[2] === 'commit' ? 'directory' : mode === '120000' ? 'symlink' : 'file';
  const sizeBytes = match[4] === '-' ? 0 : Number(match[4]);
  if (kind === 'symlink' && (sizeBytes === 0 || sizeBytes > maxTargetBytes)) {
    throw new RepoError(`${show(path)}: the symbolic link has no usable target.`);
  }
  return { path, kind, executable: mode === '100755', id: match[3]!, sizeBytes };
}

/** What git's own object checks refuse as well; here it also holds for objects that came in before a check existed. */
function checkPath(path: Buffer, maxPathBytes: number): void {
  if (path.length > maxPathBytes)
    throw new RepoError(`${show(path)}: the path is longer than ${maxPathBytes} bytes.`);
  const text = path.toString('latin1');
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f]/.test(text))
    throw new RepoError(`${show(path)}: the path has control characters.`);
  for (const part of text.split('/')) {
    if (part === '' || part === '.' || part === '..' || part.toLowerCase() === '.git') {
      throw new RepoError(`${show(path)}: a path may not contain "${part}".`);
    }
    if (part.length > 255) throw new RepoError(`${show(path)}: a name is longer than 255 bytes.`);
  }
}

function show(path: Buffer): string {
  return terminalLine(path.toString('utf8')).slice(0, 120);
}
