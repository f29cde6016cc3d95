import { closeSync, mkdirSync, openSync, readFileSync, readSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What a deployment put at a path: `f:<hash>` or `x:<hash>` for a file (x: executable), `l:<target>` for a link. */
export type Content = string;

export interface Manifest {
  /** First, so that the usual question is answered by the first bytes of a long file. */
  commit: string;
  files: Record<string, Content>;
  /** A deployment that was begun and may be done in part; what it wrote is not the agent's doing. */
  pending: Record<string, Content> | null;
}

const headBytes = 128;

export function manifestPath(home: string): string {
  return join(home, '.berth', 'manifest.json');
}

/** Whether the workspace is at the commit already. */
export function isAt(path: string, commit: string): boolean {
  const head = Buffer.alloc(headBytes);
  try {
    const descriptor = openSync(path, 'r');
    try {
      const bytes = readSync(descriptor, head, 0, headBytes, 0);
      return head.toString('latin1', 0, bytes).startsWith(`{"commit":"${commit}","pending":null,`);
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return false;
  }
}

/** A missing or damaged one counts as none: then every file that is there is taken for the agent's own. */
export function readManifest(path: string): Manifest {
  try {
    const value = JSON.parse(readFileSync(path, 'utf8')) as Partial<Manifest>;
    return {
      commit: `${value.commit ?? ''}`,
      files: asFiles(value.files),
      pending: value.pending ? asFiles(value.pending) : null,
    };
  } catch {
    return { commit: '', files: {}, pending: null };
  }
}

export function writeManifest(path: string, { commit, files, pending }: Manifest): void {
  mkdirSync(dirname(path), { recursive: true });
  const temporary = `${path}.tmp`;
  writeFileSync(temporary, JSON.stringify({ commit, pending, files }));
  renameSync(temporary, path);
}

function asFiles(value: unknown): Record<string, Content> {
  // Without a prototype, since a file may be called __proto__.
  const files: Record<string, Content> = Object.create(null);
  if (typeof value !== 'object' || value === null) return files;
  for (const [path, content] of Object.entries(value)) if (typeof content === 'string') files[path] = content;
  return files;
}
