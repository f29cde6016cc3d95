import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import type { BubblewrapOptions } from '../../src/sandbox/bubblewrap.ts';
import { openCgroups } from '../../src/sandbox/cgroup/cgroups.ts';
import { readMounts } from '../../src/sandbox/cgroup/mounts.ts';
import { RESERVED_DATA_BYTES } from '../../src/sandbox/rlimits.ts';
import { collect, fixture, isRoot, lineOf, MIB, pidsOf } from './fixture.ts';

const folder = mkdtempSync(join(tmpdir(), 'berth-limits-'));
after(() => rmSync(folder, { recursive: true }));

const limits = { memoryBytes: 200 * MIB, cpus: 1, pids: 61, diskBytes: 64 * MIB, openFiles: 251 };

/** What the kernel says of the process itself (proc_pid_limits(5)): soft and hard limit by name. */
function limitsIn(text: string): Record<string, string> {
  const rows = [...text.matchAll(/^(Max [a-z ]+?) {2,}(\S+) +(\S+)/gm)];
  return Object.fromEntries(rows.map(([, name, soft, hard]) => [name, `${soft} ${hard}`]));
}

/** In how many hierarchies of cgroups a sandbox gets a folder on this host. */
async function hierarchiesHere(): Promise<number> {
  const cgroups = await openCgroups({ ...readMounts(), name: `berth-count-${newId().slice(-12)}`, isRoot });
  cgroups.close();
  return cgroups.hierarchies.length;
}

const twice = (value: number): string => `${value} ${value}`;

const ways: [how: string, options: Partial<BubblewrapOptions>][] = [
  ['by the helper, without a program', { prlimitPath: '/no/such/prlimit' }],
  ['by a program, where there is no helper', { perlPath: '/no/such/perl' }],
  ['by a program, where the helper fails', { perlPath: '/bin/false' }],
  ['by a program, where the helper ends after its first word', { perlPath: lies('started $$') }],
  [
    'by a program, where the helper tells no process that there is',
    { perlPath: lies('started $$', 'init 0', 'ok') },
  ],
];

/** A program that answers every order with these words, and ends. */
function lies(...words: string[]): string {
  const path = join(folder, `helper-${words.length}`);
  const answers = words.map((said) => `echo "$number ${said}"`).join('\n');
  writeFileSync(path, `#!/bin/sh\nread -r number _\n${answers}\n`, { mode: 0o755 });
  return path;
}

for (const [how, options] of ways) {
  for (const useCgroups of [true, false]) {
    test(`a sandbox has its limits before its program runs, ${how}, cgroups ${useCgroups ? 'as there are' : 'left alone'}`, async () => {
      const fx = fixture({ ...options, useCgroups });
      try {
        const sandbox = await fx.start('cat /proc/self/limits; echo all; exec cat', { limits });
        let said = '';
        await lineOf(sandbox.stdout, (line) => {
          said += `${line}\n`;
          return line === 'all';
        });
        const has = limitsIn(said);
        const wanted = {
          'Max core file size': twice(1),
          'Max nice priority': twice(0),
          'Max realtime priority': twice(0),
          'Max open files': twice(limits.openFiles),
          'Max file size': twice(limits.diskBytes),
          ...(useCgroups
            ? {}
            : {
                'Max processes': twice(limits.pids),
                'Max data size': twice(limits.memoryBytes + RESERVED_DATA_BYTES),
              }),
        };
        assert.deepEqual(Object.fromEntries(Object.keys(wanted).map((name) => [name, has[name]])), wanted);
        const pids = pidsOf(sandbox);
        assert.ok(pids.length > 0);
        const hierarchies = useCgroups ? await hierarchiesHere() : 0;
        for (const pid of pids) {
          const member = readFileSync(`/proc/${pid}/cgroup`, 'utf8');
          assert.equal(member.split(`/${sandbox.id}\n`).length - 1, hierarchies, member);
        }
        sandbox.stdin.end();
        await collect(sandbox);
      } finally {
        await fx.close();
      }
    });
  }
}
