import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { inflate } from 'node:zlib';
import { isCommitId, isRefName } from './ref-names.ts';

const inflated = promisify(inflate);

/** Of a file, and of the commit in it: git reads what is larger. */
const mostBytes = 64 * 1024;
const mostInflatedBytes = 1024 * 1024;

/**
 * The commit that a full ref or object name stands for, where that can be read from the files of a repository as git writes
 * them first (gitrepository-layout): most refs of an agent, at a fraction of what a process of git costs. Null: there is no
 * such ref. Undefined: only git can tell, since it is packed, symbolic, a tag, or broken.
 */
export async function looseCommit(gitDir: string, name: string): Promise<string | null | undefined> {
  if (isCommitId(name)) return (await isLooseCommit(gitDir, name)) ? name : undefined;
  if (!name.startsWith('refs/') || !isRefName(name)) return undefined;
  const text = await textOf(join(gitDir, name));
  // Git writes the packed list before it removes what is in it, so that this order misses nothing.
  if (text === null) return (await textOf(join(gitDir, 'packed-refs'))) === null ? null : undefined;
  const id = text?.replace(/\n$/, '') ?? '';
  return isCommitId(id) && (await isLooseCommit(gitDir, id)) ? id : undefined;
}

/** As careful as git: the object is there, whole, and a commit. */
async function isLooseCommit(gitDir: string, id: string): Promise<boolean> {
  const path = join(gitDir, 'objects', id.slice(0, 2), id.slice(2));
  try {
    if ((await stat(path)).size > mostBytes) return false;
    const object = await inflated(await readFile(path), { maxOutputLength: mostInflatedBytes });
    const head = `commit ${object.length - object.indexOf(0) - 1}\0`;
    if (object.toString('latin1', 0, head.length) !== head) return false;
    return createHash('sha1').update(object).digest('hex') === id;
  } catch {
    return false;
  }
}

/** Null: there is no such file. Undefined: it is none to be read. */
async function textOf(path: string): Promise<string | null | undefined> {
  try {
    if ((await stat(path)).size > mostBytes) return undefined;
    return await readFile(path, 'latin1');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' || code === 'ENOTDIR' ? null : undefined;
  }
}
