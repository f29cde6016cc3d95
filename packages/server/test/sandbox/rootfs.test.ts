import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { rootfs } from './rootfs.ts';

test('the root directory of the test image is made once for the same programs, and what nobody uses is removed in time', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-rootfs-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const at = (name: string) => join(folder, name);
  const made: string[] = [];
  const make = (file: string) => {
    made.push(file);
    writeFileSync(file, 'tar');
  };
  const age = (name: string, hours: number) => {
    const then = new Date(Date.now() - hours * 3_600_000);
    utimesSync(at(name), then, then);
  };
  writeFileSync(at('one'), 'a program');
  const first = rootfs(folder, [at('one')], make);
  // A fresh installation: the same program, at another time and place.
  copyFileSync(at('one'), at('two'));
  age('two', 100);
  assert.equal(rootfs(folder, [at('two')], make), first);
  assert.deepEqual(made, [first]);

  // As old as it may be, who uses it says so, and others leave it alone.
  const name = first.slice(folder.length + 1);
  age(name, 100);
  rootfs(folder, [at('one')], make);
  const begun = `berth-test-rootfs-${'a'.repeat(16)}.tar.123`;
  const foreign = 'berth-test-rootfs-1796012255627-1672924848000-1796012269199.tar';
  for (const other of [begun, foreign, 'other.tar']) {
    writeFileSync(at(other), '');
    age(other, 100);
  }
  const young = `berth-test-rootfs-${'b'.repeat(16)}.tar`;
  writeFileSync(at(young), '');
  age(young, 1);
  writeFileSync(at('one'), 'another program');
  const second = rootfs(folder, [at('one')], make);
  assert.deepEqual(made, [first, second]);
  const left = () => readdirSync(folder).filter((one) => one.endsWith('.tar') || one.endsWith('.123'));
  const kept = [foreign, 'other.tar', young, second.slice(folder.length + 1)];
  assert.deepEqual(left().toSorted(), [...kept, name].toSorted());
  age(name, 100);
  rootfs(folder, [at('one')], make);
  assert.deepEqual(left().toSorted(), kept.toSorted());
});
