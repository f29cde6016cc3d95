import { RepoError } from '../domain/ports/repos.ts';
import { ByteReader } from './byte-reader.ts';
import { killGit, spawnGit } from './git-process.ts';

const maxTreeBytes = 8 * 1024 * 1024;
/** A line break would be a second request to `cat-file`. */
// oxlint-disable-next-line no-control-regex
const controls = /[\u0000-\u001f\u007f]/;

/**
 * Reads one regular file of a commit in one `git cat-file --batch`: tree by tree along the path, so that a symbolic
 * link is seen as what it is and never followed, neither inside the repository nor out of it.
 */
export async function readTreeFile(
  gitDir: string,
  commit: string,
  path: string,
  maxBytes: number,
): Promise<Buffer | null> {
  const parts = path.split('/');
  if (parts.some((part) => part === '' || part === '.' || part === '..') || controls.test(path)) {
    return null;
  }
  const child = spawnGit(['cat-file', '--batch'], { gitDir, timeoutMs: 20_000 });
  child.on('error', () => undefined);
  child.stderr.resume();
  const reader = new ByteReader(child.stdout);
  const read = async (name: string, limit: number, tooLarge: string): Promise<Buffer | null> => {
    child.stdin.write(`${name}\n`);
    const header = await reader.until('\n', 4096);
    if (header === null) throw new RepoError('The repository cannot be read.');
    const match = /^[0-9a-f]{40} (blob|tree) (\d+)$/.exec(header);
    if (!match) return null;
    const size = Number(match[2]);
    if (size > limit) throw new RepoError(tooLarge);
    const bytes = await reader.bytes(size);
    await reader.bytes(1);
    return bytes;
  };
  try {
    let name = `${commit}^{tree}`;
    for (const [index, part] of parts.entries()) {
      const tree = await read(name, maxTreeBytes, 'A directory of the repository has too many entries.');
      const entry = tree && findEntry(tree, part);
      const isLast = index === parts.length - 1;
      if (!entry || (isLast ? !entry.mode.startsWith('100') : entry.mode !== '40000')) return null;
      name = entry.id;
    }
    return await read(name, maxBytes, `${path} is larger than ${maxBytes} bytes.`);
  } finally {
    killGit(child);
  }
}

/** A tree object is a row of `<octal mode> <name>\0<20 bytes of id>`. */
function findEntry(tree: Buffer, name: string): { mode: string; id: string } | null {
  const wanted = Buffer.from(name);
  for (let at = 0; at < tree.length;) {
    const space = tree.indexOf(0x20, at);
    const nul = tree.indexOf(0, space);
    if (space === -1 || nul === -1) return null;
    if (tree.subarray(space + 1, nul).equals(wanted)) {
      return { mode: tree.toString('latin1', at, space), id: tree.toString('hex', nul + 1, nul + 21) };
    }
    at = nul + 21;
  }
  return null;
}
