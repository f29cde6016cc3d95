import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isId } from '../domain/ids.ts';
import { runGit } from '../repos/git-process.ts';
import { RepoStore } from '../repos/repo-store.ts';

export interface RepoEntry {
  agentId: string;
  /** The ref that HEAD names, such as `refs/heads/main`. */
  head: string;
  /** False = the repository has no commit; git makes no bundle of such a one. */
  hasBundle: boolean;
}

const timeoutMs = 600_000;

/** Writes a git bundle with every ref for each repository below `root`. Reads objects and refs only: nothing is checked out. */
export async function writeBundles(root: string, folder: string): Promise<RepoEntry[]> {
  const names = await readdir(root).catch(() => []);
  const agentIds = names.filter((name) => name.endsWith('.git')).map((name) => name.slice(0, -'.git'.length));
  const entries: RepoEntry[] = [];
  for (const agentId of agentIds.filter(isId).sort()) {
    const gitDir = join(root, `${agentId}.git`);
    const head = (await git(gitDir, ['symbolic-ref', 'HEAD'])).trim();
    const hasBundle = (await git(gitDir, ['for-each-ref', '--count=1'])) !== '';
    if (hasBundle)
      await git(gitDir, ['bundle', 'create', '--quiet', join(folder, `${agentId}.bundle`), '--all']);
    entries.push({ agentId, head, hasBundle });
  }
  return entries;
}

/** Makes a repository of a bundle. Every object is checked, as if it came by a push. */
export async function readBundle(root: string, folder: string, entry: RepoEntry): Promise<void> {
  if (!isId(entry.agentId) || !/^refs\/heads\/[^\s~^:?*[\\]+$/.test(entry.head)) {
    throw new Error(`The backup names a repository that cannot be: ${JSON.stringify(entry.agentId)}.`);
  }
  await new RepoStore(root).make(entry.agentId, async (gitDir) => {
    if (entry.hasBundle) {
      const bundle = join(folder, `${entry.agentId}.bundle`);
      await git(gitDir, ['fetch', '--quiet', '--no-tags', '--no-write-fetch-head', bundle, '+refs/*:refs/*']);
    }
    await git(gitDir, ['symbolic-ref', 'HEAD', entry.head]);
  });
}

async function git(gitDir: string, args: string[]): Promise<string> {
  const config = [['fetch.fsckObjects', 'true']] as const;
  const env = { GIT_ALLOW_PROTOCOL: 'file' };
  const result = await runGit(args, { gitDir, timeoutMs, config, env });
  if (result.code !== 0) {
    throw new Error(
      `git ${args[0]} failed for ${gitDir}: ${result.stderr.trim().slice(0, 500) || `code ${result.code}`}`,
    );
  }
  return result.stdout.toString('utf8');
}
