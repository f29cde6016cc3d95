import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  readlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { compileFilter, isFilterArch } from './seccomp/filter.ts';
import { writeEtc } from './etc.ts';
import { putFile } from './put-file.ts';

/** Files that all sandboxes share, read-only; made anew at each start of the service. */
export interface Area {
  filterFile: string;
  /** bwrap arguments of the root directory, /usr and /etc. */
  rootArgs: string[];
  /** bwrap arguments that cover files of /proc with an empty one. */
  maskArgs: string[];
}

/** World-readable files that tell of the host rather than of the sandbox. Kernels differ in which they have. */
const hostFacts = ['cmdline', 'kallsyms', 'modules', 'interrupts', 'keys', 'key-users'].map(
  (name) => `/proc/${name}`,
);

const topFolders = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];

/** `folder` must be enterable by the sandboxes' users. Throws where there is no system call filter for the machine. */
export function prepareArea(folder: string): Area {
  if (!isFilterArch(process.arch)) {
    throw new Error(`There is no system call filter for ${process.arch}; sandboxes run on x64 and arm64.`);
  }
  mkdirSync(folder, { recursive: true });
  // The umask of the service must not close it for the sandboxes' users.
  chmodSync(folder, 0o755);
  const filterFile = join(folder, 'filter.bpf');
  putFile(filterFile, compileFilter(process.arch), 0o644);
  const emptyFile = join(folder, 'empty');
  putFile(emptyFile, '', 0o444);
  const etc = join(folder, 'etc');
  const borrowed = writeEtc(etc);
  return {
    filterFile,
    maskArgs: hostFacts.filter(existsSync).flatMap((path) => ['--ro-bind', emptyFile, path]),
    rootArgs: [
      ...['--ro-bind', '/usr', '/usr'],
      ...topFolders.flatMap(topFolderArgs),
      ...['--ro-bind', etc, '/etc'],
      ...borrowed.flatMap(({ hostPath, path }) => ['--ro-bind', hostPath, path]),
    ],
  };
}

/** With a merged /usr these are links; older systems have real folders. */
function topFolderArgs(name: string): string[] {
  const path = `/${name}`;
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (!stat) return [];
  return stat.isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
}

/**
 * Descriptors that the service itself inherited without close-on-exec, and that would be handed on to every child.
 * Node opens its own with close-on-exec, so one look when the service starts is enough.
 */
export function inheritedDescriptors(): number[] {
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const fd = Number(name);
    if (fd <= 2) return [];
    try {
      const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1];
      const closesOnExec = flags === undefined || (Number.parseInt(flags, 8) & 0o2000000) !== 0;
      return closesOnExec ? [] : [fd];
    } catch {
      // The descriptor of this listing itself is gone by now.
      return [];
    }
  });
}
