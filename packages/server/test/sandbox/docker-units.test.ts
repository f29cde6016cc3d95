import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import type { Isolation } from '../../src/domain/ports/sandbox.ts';
import { containerBody, USER_KERNEL_THREADS } from '../../src/sandbox/docker/container.ts';
import { provenIsolation } from '../../src/sandbox/docker/isolation.ts';
import { takeApart } from '../../src/sandbox/docker/streams.ts';
import { compileFilter, syscallsOf, type FilterArch } from '../../src/sandbox/seccomp/filter.ts';
import { everythingBut, ociProfile } from '../../src/sandbox/seccomp/oci.ts';
import { runFilter } from './bpf-machine.ts';

const frame = (stream: number, text: string): Buffer => {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
};
const read = async (stream: AsyncIterable<unknown>): Promise<string> => {
  let all = '';
  for await (const chunk of stream) all += String(chunk);
  return all;
};

test('outputs are told apart however the frames are cut', async () => {
  const bytes = Buffer.concat([
    frame(1, 'out'),
    frame(2, 'err'),
    frame(1, ''),
    frame(1, ' more'),
    frame(2, '!'),
  ]);
  for (const size of [1, 2, 3, 7, 8, 9, 100]) {
    const source = new PassThrough();
    const { stdout, stderr } = takeApart(source);
    for (let at = 0; at < bytes.length; at += size) source.write(bytes.subarray(at, at + size));
    source.end();
    assert.deepEqual(await Promise.all([read(stdout), read(stderr)]), ['out more', 'err!'], `${size}`);
  }
});

test('an output that nobody reads holds the source back', async () => {
  const source = new PassThrough();
  const { stdout } = takeApart(source);
  let written = 0;
  while (written < 64 && source.write(frame(1, 'x'.repeat(64 * 1024)))) {
    written += 1;
    await new Promise(setImmediate);
  }
  assert.ok(written < 64, `${written} frames were taken in without a reader`);
  assert.ok(stdout.readableLength < 1024 * 1024);
  source.destroy();
});

test('isolation is told by the kernel that a trial saw, and never by a name', () => {
  const boot = '11111111-2222-3333-4444-555555555555';
  const linux = 'version Linux version 6.1.0 (gcc) #1 SMP';
  assert.equal(provenIsolation(`boot ${boot}\n${linux}\n`, boot), 'kernel');
  const gvisor = 'boot \nversion Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n';
  assert.equal(provenIsolation(gvisor, boot), 'user-kernel');
  assert.equal(provenIsolation(`boot 99999999-2222-3333-4444-555555555555\n${linux}\n`, boot), 'vm');
  assert.equal(provenIsolation('boot \nversion \n', boot), 'kernel');
});

test('all numbers but a few are covered by prefixes, and those few by none', () => {
  const few = [0x5412, 0x541c, 0x5423];
  const prefixes = everythingBut(few);
  const isCovered = (value: number): number =>
    prefixes.filter(({ mask, value: prefix }) => (value & mask) >>> 0 === prefix).length;
  for (const value of few) assert.equal(isCovered(value), 0);
  for (const value of [0, 1, 0x5411, 0x5413, 0x541b, 0x541d, 0x5401, 0xffffffff, 0x80045430, 0x15412])
    assert.equal(isCovered(value), 1, value.toString(16));
});

for (const arch of ['x64', 'arm64'] as FilterArch[]) {
  describe(`the profile for container engines on ${arch}`, () => {
    const profile = ociProfile(arch);
    const audit = { x64: 0xc000003e, arm64: 0xc00000b7 }[arch];

    const matching = (name: string, args: bigint[]) =>
      profile.syscalls.filter(
        (one) =>
          one.names.includes(name) &&
          (one.args ?? []).every(
            ({ index, value, valueTwo }) => ((args[index] ?? 0n) & BigInt(value)) === BigInt(valueTwo),
          ),
      );
    /** What a runtime would do: the first rule whose arguments match. */
    const verdict = (name: string, args: bigint[]): 'allow' | number => {
      const [rule] = matching(name, args);
      if (!rule) return profile.defaultErrnoRet;
      return rule.action === 'SCMP_ACT_ALLOW' ? 'allow' : (rule.errnoRet ?? profile.defaultErrnoRet);
    };

    const ALLOW = 0x7fff0000;
    /** Their errors are the same too. */
    const byTheSecond = new Set(['ioctl', 'fallocate']);
    test('allows exactly what our own filter allows, argument by argument', () => {
      const filter = compileFilter(arch);
      const interesting = [
        0n,
        1n,
        2n,
        8n,
        10n,
        16n,
        17n,
        40n,
        0x5401n,
        0x5412n,
        0x541cn,
        0x5423n,
        0x10000011n,
        ...[3n, 0x40305828n, 0x40305829n, 0x401c5820n, 0x5000940en],
      ];
      const high = interesting.map((value) => value | 0x1_0000_0000n);
      for (const [name, number] of syscallsOf(arch)) {
        for (const first of [...interesting, ...high, 0xffff_ffffn]) {
          const args = byTheSecond.has(name) ? [0n, first] : [first, 1n, 6n];
          const ours = runFilter(filter, { arch: audit, number, args });
          const what = `${name} ${first.toString(16)}`;
          assert.equal(verdict(name, args) === 'allow', ours === ALLOW, what);
          if (ours !== ALLOW && byTheSecond.has(name)) assert.equal(verdict(name, args), ours & 0xffff, what);
        }
      }
    });

    test('has one rule at most for what is asked, so that their order means nothing', () => {
      for (const [name, asked] of [
        ['fallocate', [0n, 1n, 2n, 3n, 16n, 0xffff_ffffn, 0x1_0000_0003n]],
        ['ioctl', [0x5401n, 0x5412n, 0x40305828n, 0x40305829n, 0x1_4030_5828n, 0xffff_ffffn]],
      ] as const)
        for (const second of asked) assert.equal(matching(name, [0n, second]).length, 1, `${name} ${second}`);
    });
  });
}

test('A container gets the threads of a kernel in user space also while it is not known whether it has one.', () => {
  const spec = {
    id: 'a',
    slot: 0,
    volumeDir: '/v',
    runDir: '/r',
    binds: [],
    command: ['/bin/true'],
    env: {},
    limits: { memoryBytes: 64 * 1024 * 1024, cpus: 1, pids: 128, diskBytes: 1024 * 1024, openFiles: 64 },
    detached: false,
    transparentEgress: false,
  };
  const options = { image: 'i', runtime: null, uid: 1, gid: 1, installation: 'n', seccomp: '{}', etc: [] };
  const limitOf = (isolation: Isolation | null) => {
    const body = containerBody(spec, { ...options, isolation, fileBytes: 1024, logFile: null });
    return (body['HostConfig'] as { PidsLimit: number }).PidsLimit;
  };
  const withThreads = 128 + USER_KERNEL_THREADS;
  assert.deepEqual(
    [limitOf(null), limitOf('user-kernel'), limitOf('kernel')],
    [withThreads, withThreads, 128],
  );
});
