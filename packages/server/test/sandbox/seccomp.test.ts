import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { assemble } from '../../src/sandbox/seccomp/bpf.ts';
import { compileFilter, isFilterArch, type FilterArch } from '../../src/sandbox/seccomp/filter.ts';
import { allowed, checked } from '../../src/sandbox/seccomp/policy.ts';
import { syscallsArm64 } from '../../src/sandbox/seccomp/syscalls-arm64.ts';
import { syscallsX64 } from '../../src/sandbox/seccomp/syscalls-x64.ts';
import { numbered } from '../../src/sandbox/seccomp/table.ts';
import { runFilter } from './bpf-machine.ts';

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const refused = (errno: number): number => 0x00050000 | errno;
const [EPERM, ENOSYS, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT] = [1, 38, 93, 95, 97];

const machines = {
  x64: { audit: 0xc000003e, table: syscallsX64, foreign: [0x40000003, 0xc00000b7] },
  arm64: { audit: 0xc00000b7, table: syscallsArm64, foreign: [0x40000028, 0xc000003e] },
};

for (const arch of Object.keys(machines) as FilterArch[]) {
  describe(`the system call filter for ${arch}`, () => {
    const { audit, table, foreign } = machines[arch];
    const program = compileFilter(arch);
    const ask = (name: string, ...args: (number | bigint)[]): number => {
      const number = table.get(name);
      assert.ok(number !== undefined, `${name} has a number`);
      return runFilter(program, { arch: audit, number, args });
    };

    test('fits what the kernel takes', () => {
      assert.equal(program.length % 8, 0);
      assert.ok(program.length / 8 <= 4096);
    });

    test('allows exactly the listed system calls, whatever their arguments', () => {
      const listed = new Set(allowed);
      for (const [name, number] of table) {
        if ((checked as readonly string[]).includes(name)) continue;
        const verdict = runFilter(program, { arch: audit, number, args: [1, 2, 3, 4, 5, 6] });
        assert.equal(verdict, listed.has(name) ? ALLOW : refused(EPERM), name);
      }
    });

    test('tells programs that there is no asynchronous I/O, whose contexts all of the host share', () => {
      for (const name of [
        'io_setup',
        'io_destroy',
        'io_submit',
        'io_cancel',
        'io_getevents',
        'io_pgetevents',
      ])
        assert.equal(ask(name, 1, 0), refused(ENOSYS), name);
    });

    test('tells libc that numbers which nobody knows do not exist', () => {
      for (const number of [468, 500, 10_000, 0x3fffffff]) {
        assert.equal(runFilter(program, { arch: audit, number, args: [] }), refused(ENOSYS));
      }
    });

    test('ends a process that calls by another architecture', () => {
      for (const other of foreign) {
        assert.equal(runFilter(program, { arch: other, number: 0, args: [] }), KILL_PROCESS);
      }
    });

    test('lets threads be made, and no namespace', () => {
      const CLONE_THREAD_FLAGS = 0x3d0f00;
      assert.equal(ask('clone', CLONE_THREAD_FLAGS), ALLOW);
      assert.equal(ask('clone', 17), ALLOW);
      for (const bit of [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]) {
        assert.equal(ask('clone', bit | 17), refused(EPERM), bit.toString(16));
      }
      assert.equal(ask('clone3', 0, 0), refused(ENOSYS));
    });

    test('lets only ordinary sockets be made', () => {
      for (const protocol of [0, 1, 6, 17, 58]) assert.equal(ask('socket', 2, 1, protocol), ALLOW);
      assert.equal(ask('socket', 1, 1, 0), ALLOW);
      assert.equal(ask('socket', 10, 0x80801, 6), ALLOW);
      assert.equal(ask('socket', 16, 3, 0), ALLOW);
      assert.equal(ask('socket', 16, 3, 12), refused(EAFNOSUPPORT));
      for (const protocol of [33, 132, 136, 262])
        assert.equal(ask('socket', 2, 1, protocol), refused(EPROTONOSUPPORT));
      for (let family = 0; family < 64; family++) {
        if ([1, 2, 10, 16].includes(family)) continue;
        assert.equal(ask('socket', family, 1, 0), refused(EAFNOSUPPORT), `${family}`);
      }
      assert.equal(ask('socketpair', 1, 1, 0), ALLOW);
      assert.equal(ask('socketpair', 40, 1, 0), refused(EAFNOSUPPORT));
    });

    test('is not fooled by high bits that the kernel cuts off', () => {
      const high = 0x1_0000_0000n;
      assert.equal(ask('ioctl', 0, high | 0x5412n), refused(EPERM));
      assert.equal(ask('socket', high | 40n, 1, 0), refused(EAFNOSUPPORT));
      assert.equal(ask('clone', high | 0x10000000n), refused(EPERM));
      assert.equal(ask('personality', high | 0x0040000n), refused(EPERM));
      assert.equal(ask('ioctl', 0, high | 0x40305828n), refused(EOPNOTSUPP));
      assert.equal(ask('fallocate', 3, high | 0x1n, 0, 1), refused(EOPNOTSUPP));
    });

    test('keeps terminals usable without the requests that reach other programs or old drivers', () => {
      for (const request of [0x5401, 0x5413, 0x540e, 0x5421]) assert.equal(ask('ioctl', 0, request), ALLOW);
      for (const request of [0x5412, 0x541c, 0x5423]) assert.equal(ask('ioctl', 0, request), refused(EPERM));
    });

    test('lets room of a file be given back, and none set aside, whatever the mode', () => {
      const PUNCH_HOLE_KEEP_SIZE = 3;
      assert.equal(ask('fallocate', 3, PUNCH_HOLE_KEEP_SIZE, 0, 1), ALLOW);
      for (let mode = 0; mode < 256; mode++) {
        if (mode === PUNCH_HOLE_KEEP_SIZE) continue;
        assert.equal(ask('fallocate', 3, mode, 0, 1), refused(EOPNOTSUPP), `mode ${mode}`);
      }
      for (const mode of [0x80000000, 0xffffffff, -1, 0x10003])
        assert.equal(ask('fallocate', 3, mode, 0, 1), refused(EOPNOTSUPP), `mode ${mode}`);
    });

    test('closes the requests that set room aside by another name, or hide it from who measures', () => {
      const numbers: Record<string, number[]> = {
        'FS_IOC_RESVSP, RESVSP64, ZERO_RANGE': [0x40305828, 0x4030582a, 0x40305839],
        'XFS_IOC_ALLOCSP, FREESP': [0x4030580a, 0x4030580b, 0x40305824, 0x40305825],
        FS_IOC_FSSETXATTR: [0x401c5820],
        'BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE': [0x50009401, 0x50009417, 0x5000940e, 0x50009418],
      };
      for (const [name, requests] of Object.entries(numbers))
        for (const request of requests)
          assert.equal(ask('ioctl', 3, request, 0), refused(EOPNOTSUPP), `${name} ${request.toString(16)}`);
      // FS_IOC_UNRESVSP, UNRESVSP64 give back; FICLONE shares; FS_IOC_FSGETXATTR, GETFLAGS and SETFLAGS take nothing.
      for (const request of [0x40305829, 0x4030582b, 0x40049409, 0x801c581f, 0x80086601, 0x40086602])
        assert.equal(ask('ioctl', 3, request, 0), ALLOW, request.toString(16));
    });

    test('lets the personality be asked, and set to the two that change nothing', () => {
      for (const value of [0, 8, 0xffffffff]) assert.equal(ask('personality', value), ALLOW);
      for (const value of [0x0040000, 0x0400000, 4]) assert.equal(ask('personality', value), refused(EPERM));
    });
  });
}

test('the second set of system calls of x86-64 (x32) is closed', () => {
  const program = compileFilter('x64');
  for (const number of [0, 1, 59, 520]) {
    const verdict = runFilter(program, { arch: machines.x64.audit, number: 0x40000000 | number, args: [] });
    assert.equal(verdict, refused(ENOSYS));
  }
});

test('every allowed name has a number on at least one architecture', () => {
  const unknown = allowed.filter((name) => !syscallsX64.has(name) && !syscallsArm64.has(name));
  assert.deepEqual(unknown, []);
});

test('numbers of both tables are those of the kernel, by samples', () => {
  const samples = {
    read: [0, 63],
    execve: [59, 221],
    openat: [257, 56],
    ptrace: [101, 117],
    io_uring_setup: [425, 425],
    mseal: [462, 462],
    fallocate: [285, 47],
  };
  for (const [name, [x64, arm64]] of Object.entries(samples)) {
    assert.equal(syscallsX64.get(name), x64, name);
    assert.equal(syscallsArm64.get(name), arm64, name);
  }
});

test('a jump that eight bits cannot hold, or to nowhere, is refused when compiling', () => {
  const far = Array.from({ length: 300 }, () => ({ op: 'return', value: 0 }) as const);
  const jump = { op: 'equal', value: 1, yes: 'end', no: 'next' } as const;
  assert.throws(() => assemble([jump, ...far, { label: 'end' }, ...far]), /300 instructions/);
  assert.throws(() => assemble([jump]), /nowhere/);
});

test('a table with a name or a number twice is refused', () => {
  assert.throws(
    () =>
      numbered([
        { from: 1, names: 'a b' },
        { from: 2, names: 'c' },
      ]),
    /listed twice/,
  );
  assert.throws(() => numbered([{ from: 1, names: 'a a' }]), /listed twice/);
});

test('there is a filter for the two architectures that we ship for, and for no other', () => {
  assert.deepEqual(['x64', 'arm64', 'ia32', 's390x', 'toString'].map(isFilterArch), [
    true,
    true,
    false,
    false,
    false,
  ]);
});
