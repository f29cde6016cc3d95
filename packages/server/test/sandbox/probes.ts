import { syscallsArm64 } from '../../src/sandbox/seccomp/syscalls-arm64.ts';
import { syscallsX64 } from '../../src/sandbox/seccomp/syscalls-x64.ts';

/** Numbers of errors on Linux, by which the attacks tell why they were refused. */
export const errno = { EPERM: 1, ENXIO: 6, ENOSYS: 38, EPROTONOSUPPORT: 93, EAFNOSUPPORT: 97 };

const table = process.arch === 'arm64' ? syscallsArm64 : syscallsX64;

export function syscallNumber(name: string): number {
  const number = table.get(name);
  if (number === undefined) throw new Error(`No number is known for ${name}.`);
  return number;
}

/** A shell line that makes a raw system call by perl, which every Debian has, and prints `<name> <result> <errno>`. */
export function syscallLine(name: string, ...args: (number | string)[]): string {
  const list = [syscallNumber(name), ...args].join(', ');
  return `perl -e '$r = syscall(${list}); printf "%s %d %d\\n", "${name}", $r, $r < 0 ? $!+0 : 0'`;
}

/** The errno of each line that `syscallLine` printed; 0 where the call succeeded. */
export function errnosOf(stdout: string): Record<string, number> {
  const lines = stdout.trim().split('\n');
  return Object.fromEntries(lines.map((line) => [line.split(' ')[0] ?? '', Number(line.split(' ')[2])]));
}

/** Answers of a filter or of a right that is missing; others mean that the kernel looked at the arguments. */
const refusals = [1, 13, 38, 93, 97];

/**
 * A shell line that makes raw system calls, each in a process of its own, and prints `<name> refused`, `done` or `entered`:
 * entered are those that failed for another reason than being forbidden.
 */
export function calls(list: (string | [string, ...(number | string)[]])[]): string {
  const entries = list.map((one) => {
    const [name, ...args] = typeof one === 'string' ? [one, 0, 0, 0, 0, 0] : one;
    return `["${name}", ${[syscallNumber(name), ...args].join(', ')}]`;
  });
  const refused = refusals.map((code) => `${code} => 1`).join(', ');
  return `perl -e '%no = (${refused}); for $c (${entries.join(', ')}) { my ($name, @a) = @$c; my $p = fork; if ($p) { waitpid $p, 0; next } $r = syscall($a[0], @a[1..$#a]); $e = $!+0; print "$name ", $r >= 0 ? "done" : $no{$e} ? "refused" : "entered", "\\n"; exit }'`;
}
