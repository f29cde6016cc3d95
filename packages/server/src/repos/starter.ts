import type { RepoStore } from './repo-store.ts';

/**
 * The commit that the service itself put on `main`. While `main` still stands there, the repository counts as empty
 * for pushes, so that a first `git push` of an existing project is not refused as unrelated history.
 */
export const starterRef = 'refs/berth/starter';

/** The starter commit while the branch still stands on it; null once something was pushed. */
export async function untouchedStarter(
  store: RepoStore,
  agentId: string,
  branchRef: string,
): Promise<string | null> {
  const starter = await store.commitOf(agentId, starterRef);
  if (starter === null) return null;
  return (await store.commitOf(agentId, branchRef)) === starter ? starter : null;
}

/** A stream for `git fast-import` that makes one commit of these files on `main`, in one process. */
export function starterStream(files: Record<string, string>, nowMs: number): Buffer {
  const message = 'Start with the instructions of a new agent\n';
  const parts: (string | Buffer)[] = [
    'feature done\n',
    'commit refs/heads/main\n',
    `committer Berth <berth@localhost> ${Math.floor(nowMs / 1000)} +0000\n`,
    `data ${Buffer.byteLength(message)}\n${message}`,
  ];
  for (const [path, text] of Object.entries(files)) {
    const bytes = Buffer.from(text);
    parts.push(`M 100644 inline ${JSON.stringify(path)}\ndata ${bytes.length}\n`, bytes, '\n');
  }
  parts.push('\n', `reset ${starterRef}\nfrom refs/heads/main\n\n`, 'done\n');
  return Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));
}
