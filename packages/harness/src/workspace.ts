import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { isAt, manifestPath, readManifest, writeManifest } from './manifest.ts';
import type { Content, Manifest } from './manifest.ts';
import { LaunchError } from './settings.ts';
import { openTar } from './tar.ts';
import type { Tar, TarEntry } from './tar.ts';

export interface SyncOptions {
  workspace: string;
  home: string;
  archive: string;
  commit: string;
  /** Takes a line for people. */
  note: (line: string) => void;
}

export interface SyncResult {
  written: number;
  deleted: number;
  /** Paths where the agent's own state won over the deployment. */
  kept: string[];
}

/** Brings the workspace to a commit; what the agent made or changed stays (docs/design/sandbox-launch.md). */
export function syncWorkspace(options: SyncOptions): SyncResult | null {
  const path = manifestPath(options.home);
  if (isAt(path, options.commit)) return null;
  let tar: Tar;
  try {
    tar = openTar(options.archive);
  } catch (error) {
    throw new LaunchError(65, `The deployment's archive cannot be read: ${(error as Error).message}`);
  }
  try {
    if (tar.commit !== null && tar.commit !== options.commit) {
      throw new LaunchError(65, `The archive is of commit ${tar.commit}, not of ${options.commit}.`);
    }
    return new Merge(options, tar, readManifest(path)).run(path);
  } finally {
    tar.close();
  }
}

class Merge {
  readonly #options: SyncOptions;
  readonly #tar: Tar;
  readonly #old: Manifest;
  readonly #safeFolders = new Set<string>();
  readonly #buffer = Buffer.allocUnsafe(256 * 1024);
  readonly #result: SyncResult = { written: 0, deleted: 0, kept: [] };

  constructor(options: SyncOptions, tar: Tar, old: Manifest) {
    this.#options = options;
    this.#tar = tar;
    this.#old = old;
  }

  run(manifest: string): SyncResult {
    const entries = this.#wantedEntries();
    const files: Record<string, Content> = Object.create(null);
    for (const [path, entry] of entries) files[path] = this.#contentOf(entry);
    // Said before anything changes, so that after a crash the new content is not taken for a change by the agent.
    writeManifest(manifest, { ...this.#old, pending: { ...this.#old.pending, ...files } });
    // First the deletions: a directory may have to make room for a file.
    for (const path of Object.keys({ ...this.#old.files, ...this.#old.pending })) {
      if (!entries.has(path)) this.#remove(path);
    }
    for (const [path, entry] of entries) this.#place(path, entry, files[path] ?? '');
    writeManifest(manifest, { commit: this.#options.commit, files, pending: null });
    this.#say('changed by the agent and kept as they are', this.#result.kept);
    return this.#result;
  }

  /** One line however many there are: it stands in the sandbox's log. */
  #say(what: string, paths: string[]): void {
    if (paths.length === 0) return;
    const names = paths.slice(0, 10).map((path) => JSON.stringify(path));
    this.#options.note(`${paths.length} ${what}: ${names.join(', ')}${paths.length > 10 ? ', …' : ''}`);
  }

  #wantedEntries(): Map<string, TarEntry> {
    const entries = new Map<string, TarEntry>();
    const leftOut: string[] = [];
    for (const entry of this.#tar.entries) {
      if (entry.type === 'directory') continue;
      const path = safePath(entry);
      if (path === null) leftOut.push(entry.path);
      else entries.set(path, entry);
    }
    this.#say('left out of the workspace', leftOut);
    return entries;
  }

  #contentOf(entry: TarEntry): Content {
    if (entry.type === 'symlink') return `l:${entry.target}`;
    const hash = createHash('sha256');
    for (let from = 0; from < entry.size;) {
      const got = this.#tar.read(entry, from, this.#buffer);
      hash.update(this.#buffer.subarray(0, got));
      from += got;
    }
    return `${entry.isExecutable ? 'x' : 'f'}:${hash.digest('base64url')}`;
  }

  /** What is at the path now; null = nothing, `other` = what no deployment brings. */
  #current(path: string): Content | null {
    if (!this.#hasSafeFolder(path)) return 'other';
    const file = join(this.#options.workspace, path);
    const kind = lstatSync(file, { throwIfNoEntry: false });
    if (!kind) return null;
    if (kind.isSymbolicLink()) return `l:${readlinkSync(file)}`;
    if (!kind.isFile()) return 'other';
    const hash = createHash('sha256');
    const descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      if (!fstatSync(descriptor).isFile()) return 'other';
      for (;;) {
        const got = readSync(descriptor, this.#buffer, 0, this.#buffer.length, null);
        if (got === 0) break;
        hash.update(this.#buffer.subarray(0, got));
      }
    } finally {
      closeSync(descriptor);
    }
    return `${(kind.mode & 0o100) !== 0 ? 'x' : 'f'}:${hash.digest('base64url')}`;
  }

  #isDeployed(path: string, current: Content): boolean {
    return current === this.#old.files[path] || current === this.#old.pending?.[path];
  }

  #remove(path: string): void {
    const current = this.#current(path);
    if (current === null) return;
    if (!this.#isDeployed(path, current)) return void this.#result.kept.push(path);
    unlinkSync(join(this.#options.workspace, path));
    this.#result.deleted += 1;
    for (let folder = posix.dirname(path); folder !== '.'; folder = posix.dirname(folder)) {
      try {
        rmdirSync(join(this.#options.workspace, folder));
        this.#safeFolders.clear();
      } catch {
        return;
      }
    }
  }

  #place(path: string, entry: TarEntry, wanted: Content): void {
    const current = this.#current(path);
    if (current === wanted) return;
    // Nothing is there: a new file, one that an interrupted deployment of ours deleted, or one that the agent deleted;
    // only the last is a change of the agent's.
    const { files, pending } = this.#old;
    const isOurGap = !(path in files) || (pending !== null && !(path in pending));
    const isFree = current === null ? isOurGap : this.#isDeployed(path, current);
    if (!isFree || !this.#makeFolder(posix.dirname(path))) return void this.#result.kept.push(path);
    const file = join(this.#options.workspace, path);
    const temporary = join(dirname(file), `.berth-${process.pid}.tmp`);
    rmSync(temporary, { force: true });
    if (entry.type === 'symlink') symlinkSync(entry.target, temporary);
    else this.#write(entry, temporary);
    renameSync(temporary, file);
    this.#result.written += 1;
  }

  #write(entry: TarEntry, file: string): void {
    const descriptor = openSync(file, 'wx', entry.isExecutable ? 0o755 : 0o644);
    try {
      for (let from = 0; from < entry.size;) {
        const got = this.#tar.read(entry, from, this.#buffer);
        for (let done = 0; done < got;) done += writeSync(descriptor, this.#buffer, done, got - done);
        from += got;
      }
    } finally {
      closeSync(descriptor);
    }
    chmodSync(file, entry.isExecutable ? 0o755 : 0o644);
  }

  /** Whether all folders above are real ones, or missing: nothing is written through a link or in place of a file. */
  #hasSafeFolder(path: string): boolean {
    const folder = posix.dirname(path);
    if (folder === '.' || this.#safeFolders.has(folder)) return true;
    if (!this.#hasSafeFolder(folder)) return false;
    const kind = lstatSync(join(this.#options.workspace, folder), { throwIfNoEntry: false });
    if (kind && !kind.isDirectory()) return false;
    if (kind) this.#safeFolders.add(folder);
    return true;
  }

  #makeFolder(folder: string): boolean {
    if (folder === '.' || this.#safeFolders.has(folder)) return true;
    if (!this.#makeFolder(posix.dirname(folder))) return false;
    const path = join(this.#options.workspace, folder);
    const kind = lstatSync(path, { throwIfNoEntry: false });
    if (kind && !kind.isDirectory()) return false;
    if (!kind) mkdirSync(path, 0o755);
    this.#safeFolders.add(folder);
    return true;
  }
}

/** The path from the workspace, or null for what a deployment may not bring. */
function safePath(entry: TarEntry): string | null {
  if (entry.type === 'other') return null;
  const parts = entry.path.split('/').filter((part) => part !== '' && part !== '.');
  if (entry.path.startsWith('/') || parts.length === 0) return null;
  if (parts.some((part) => part === '..' || part.includes('\0') || part.toLowerCase() === '.git'))
    return null;
  if (entry.type === 'symlink') {
    if (entry.target === '' || entry.target.startsWith('/')) return null;
    const aim = posix.normalize(posix.join(parts.slice(0, -1).join('/'), entry.target));
    if (aim === '..' || aim.startsWith('../') || /(^|\/)\.git(\/|$)/i.test(aim)) return null;
  }
  return parts.join('/');
}
