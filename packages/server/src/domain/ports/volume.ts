import type { Readable } from 'node:stream';

/** A place in an agent's volume. Names are bytes, as the kernel has them: no `/`, no NUL, not `.` or `..`, never empty. */
export interface VolumePath {
  tree: 'workspace' | 'home';
  /** Empty: the tree itself. */
  names: Buffer[];
}

/** `other`: a pipe, socket or device. */
export type VolumeEntryType = 'file' | 'folder' | 'link' | 'other';

export interface VolumeEntry {
  name: Buffer;
  type: VolumeEntryType;
  /** Of a file its length, else 0. */
  sizeBytes: number;
  /** Permission bits. */
  mode: number;
  modifiedAt: Date;
  /** Where a link leads; null for all others. */
  target: Buffer | null;
  /**
   * Changes with the content: inode, length and the time of the last change, which no program can set. The text between
   * the quotes of an `ETag`, which only files have.
   */
  version: string;
}

export interface OpenVolumeFile {
  entry: VolumeEntry;
  /** From `start` to before `end`; exactly so many bytes, or an error when the file became shorter. Closes the file. */
  read(start: number, end: number): Readable;
  close(): void;
}

export interface VolumeWriteOptions {
  /** Beyond it `body_too_large`. */
  maxBytes: number;
  /** Null: that of the file which is replaced, else 0644. */
  mode: number | null;
  check: VolumeCheck;
}

/** Told what is there (null = nothing) in the moment before it is changed; when it throws, nothing is. */
export type VolumeCheck = (present: VolumeEntry | null) => void;

export interface UnpackLimits {
  maxBytes: number;
  maxEntries: number;
}

/**
 * Reads and writes the files of agents from outside of their sandboxes. Whatever a sandbox made there (links, pipes,
 * names, changes while one looks) leads to nothing outside of the volume and blocks nobody. Throws DomainError.
 */
export interface Volumes {
  /** Removes what operations left behind that a crash interrupted, in all volumes of a folder. */
  clearInterrupted(volumesDir: string): Promise<void>;
  /** Throws `not_found`. */
  stat(volumeDir: string, path: VolumePath): Promise<VolumeEntry>;
  /** Throws `not_found`; `conflict` when it is not a file. */
  open(volumeDir: string, path: VolumePath): Promise<OpenVolumeFile>;
  /** By name in byte order, those after `after`. Throws `not_found`; `conflict` when it is not a folder. */
  list(
    volumeDir: string,
    path: VolumePath,
    page: { after: Buffer | null; limit: number },
  ): Promise<VolumeEntry[]>;
  /** Whole or not at all. Makes the folders on the way. Replaces a file or link, never what a link leads to. */
  write(
    volumeDir: string,
    path: VolumePath,
    content: AsyncIterable<Buffer>,
    options: VolumeWriteOptions,
  ): Promise<{ entry: VolumeEntry; created: boolean }>;
  /** Also those on the way. False: it was there. */
  makeFolder(volumeDir: string, path: VolumePath): Promise<boolean>;
  /** Throws `not_found`; `conflict` for a folder that is not empty unless `recursive`. */
  remove(volumeDir: string, path: VolumePath, recursive: boolean, check: VolumeCheck): Promise<void>;
  /** A folder (or file) as a tar archive, read as it is taken: what a program has put in its place by then fails the stream. */
  archive(volumeDir: string, path: VolumePath): Promise<Readable>;
  /** A tar archive into a folder, which is made when absent. A bad archive changes nothing. Returns how much came. */
  unpack(
    volumeDir: string,
    path: VolumePath,
    archive: AsyncIterable<Buffer>,
    limits: UnpackLimits,
  ): Promise<{ entries: number; bytes: number }>;
}

/**
 * How both trees of a volume are replaced as one. Drivers finish one that was broken off before they use a volume.
 * `next` is the folder whose appearance decides it, `former` where in it the old trees go.
 */
export interface VolumeSwap {
  trees: readonly VolumePath['tree'][];
  nextOf(volumeDir: string): string;
  formerIn(next: string): string;
  /** Moves what is in `next` to its place, in a deed; nothing when there is none. Idempotent. */
  finish(volumeDir: string, onStep?: (step: string) => void): Promise<void>;
  syncFolder(folder: string): Promise<void>;
}

/** A part of a snapshot, found by the SHA-256 of its content (hex). */
export interface Chunk {
  hash: string;
  bytes: number;
}

/** Whole volumes, stored by content. `storeDir` is a folder of the service; nothing may change a volume meanwhile. */
export interface Snapshots {
  save(
    storeDir: string,
    volumeDir: string,
    maxBytes: number,
  ): Promise<{ chunks: Chunk[]; bytes: number; storedBytes: number }>;
  /** Replaces all that is in the volume, or nothing. */
  restore(storeDir: string, volumeDir: string, chunks: Chunk[], limits: UnpackLimits): Promise<void>;
  /** Deletes the chunks that are in none of `kept`; no save may run in this folder meanwhile. */
  sweep(storeDir: string, kept: ReadonlySet<string>): Promise<void>;
}
