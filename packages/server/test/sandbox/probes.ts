import { syscallsArm64 } from '../../src/sandbox/seccomp/syscalls-arm64.ts';
import { syscallsX64 } from '../../src/sandbox/seccomp/syscalls-x64.ts';

/** Numbers of errors on Linux, by which the attacks tell why they were refused. */
export const errno = { EPERM: 1, ENXIO: 6, ENOSYS: 38, EPROTONOSUPPORT: 93, EAFNOSUPPORT: 97 };

const table = process.arch === 'arm64' ? syscallsArm64 : syscallsX64;

/** A shell line that makes a raw system call by perl, which every Debian has, and prints `<name> <result> <errno>`. */
export function syscallLine(name: string, ...args: (number | string)[]): string {
  const number = table.get(name);
  if (number === undefined) throw new Error(`No number is known for ${name}.`);
  const list = [number, ...args].join(', ');
  return `perl -e '$r = syscall(${list}); printf "%s %d %d\\n", "${name}", $r, $r < 0 ? $!+0 : 0'`;
}

/** The errno of each line that `syscallLine` printed; 0 where the call succeeded. */
export function errnosOf(stdout: string): Record<string, number> {
  const lines = stdout.trim().split('\n');
  return Object.fromEntries(lines.map((line) => [line.split(' ')[0] ?? '', Number(line.split(' ')[2])]));
}
