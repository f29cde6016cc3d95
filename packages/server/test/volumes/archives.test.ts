import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { tarEnd, tarHeader, tarPadding, type TarEntry } from '../../src/domain/tar.ts';
import { at, chunks, isRoot, openFds, tenant, textOf, volumeWorld, type VolumeWorld } from './world.ts';

const worlds: VolumeWorld[] = [];
const dirs: string[] = [];
after(() => {
  for (const world of worlds) world.end();
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
});
const newWorld = () => {
  const world = volumeWorld();
  worlds.push(world);
  return world;
};
const newDir = () => {
  const dir = mkdtempSync('/tmp/berth-a-');
  dirs.push(dir);
  return dir;
};

const limits = { maxBytes: 10_000_000, maxEntries: 1_000 };
const code = (expected: string) => (error: { code?: string }) => {
  assert.equal(error.code, expected, String(error));
  return true;
};

interface Made extends Partial<Omit<TarEntry, 'path' | 'target'>> {
  path: string;
  target?: string;
  content?: string;
}

function entry({ path, target = '', content = '', ...rest }: Made): Buffer {
  const bytes = Buffer.from(content);
  const header = tarHeader({
    kind: 'file',
    mode: 0o644,
    mtimeSeconds: 1_700_000_000,
    sizeBytes: bytes.length,
    ...rest,
    path: Buffer.from(path),
    target: Buffer.from(target),
  });
  return Buffer.concat([header, bytes, tarPadding(bytes.length)]);
}

const archive = (...entries: Made[]) => Buffer.concat([...entries.map(entry), tarEnd]);

/** Changes the type flag of the first header, with a right checksum. */
function retyped(block: Buffer, flag: string): Buffer {
  const made = Buffer.from(block);
  made.write(flag, 156, 'latin1');
  made.write('        ', 148, 'latin1');
  let sum = 0;
  for (const byte of made.subarray(0, 512)) sum += byte;
  made.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return made;
}

test('what tar packs is unpacked: files, modes, times, folders, links, hard links, long names', async () => {
  const { volumes, volumeDir, workspace } = newWorld();
  const source = newDir();
  const long = 'n'.repeat(200);
  execFileSync('/bin/sh', [
    '-c',
    `cd ${source}; mkdir -p a/b; echo hi > a/b/c; chmod 750 a/b/c; ln -s /etc/passwd a/link; ln a/b/c a/hard
     mkdir ${long}; echo deep > ${long}/${long}; touch -d @1600000000 a/b/c; printf x > "a/ü"`,
  ]);
  for (const format of ['gnu', 'pax', 'ustar']) {
    const except = format === 'ustar' ? [`--exclude=${long}`] : [];
    const packed = execFileSync('tar', ['-C', source, `--format=${format}`, ...except, '-cf', '-', '.'], {
      maxBuffer: 1e8,
    });
    // In pieces of odd sizes, as a network gives them.
    const parts: Buffer[] = [];
    for (let from = 0; from < packed.length; from += 777) parts.push(packed.subarray(from, from + 777));
    await volumes.unpack(volumeDir, at(`in/${format}`), chunks(...parts), limits);
    const root = join(workspace, 'in', format);
    const stat = statSync(join(root, 'a/b/c'));
    assert.equal(stat.mode & 0o7777, 0o750);
    assert.equal(stat.mtimeMs, 1_600_000_000_000);
    if (tenant) assert.equal(stat.uid, tenant.uid);
    assert.equal(stat.ino, statSync(join(root, 'a/hard')).ino);
    assert.ok(lstatSync(join(root, 'a/link')).isSymbolicLink());
    assert.equal(readFileSync(join(root, 'a/ü'), 'utf8'), 'x');
    if (format !== 'ustar') assert.equal(readFileSync(join(root, long, long), 'utf8'), 'deep\n');
  }
});

test('an archive of a folder is what tar unpacks to the same', async () => {
  const { volumes, volumeDir, shell, workspace } = newWorld();
  const long = 'm'.repeat(180);
  shell(`mkdir -p d/e ${long}/${long}; head -c 700000 /dev/urandom > d/big; chmod 755 d/big; ln d/big d/e/same
    ln -s nowhere d/dangling; mkfifo d/fifo; echo x > ${long}/${long}/y; : > d/empty; printf z > "d/$(printf 'a\nb')"`);
  const packed = await textOf(await volumes.archive(volumeDir, at('')));
  const again = await textOf(await volumes.archive(volumeDir, at('')));
  assert.ok(again.equals(packed), 'the order is that of names, so the same tree gives the same bytes');
  const target = newDir();
  execFileSync('tar', ['-C', target, '-xf', '-'], { input: packed });
  // It would be waited for.
  execFileSync('rm', [join(workspace, 'd/fifo')]);
  execFileSync('diff', ['-r', '--no-dereference', workspace, target]);
  assert.equal(statSync(join(target, 'd/big')).ino, statSync(join(target, 'd/e/same')).ino);
  assert.equal(statSync(join(target, 'd/big')).mode & 0o777, 0o755);
  const names = (bytes: Buffer) => execFileSync('tar', ['-tf', '-'], { input: bytes, encoding: 'utf8' });
  assert.ok(!names(packed).includes('fifo'));
});

test('what is unpacked joins what is there, replaces files, and an archive that does not fit changes nothing', async () => {
  const { volumes, volumeDir, shell, workspace } = newWorld();
  shell('mkdir -p t/keep t/dir; echo old > t/file; echo kept > t/keep/kept; echo blocked > t/blocked');
  await volumes.unpack(
    volumeDir,
    at('t'),
    chunks(
      archive(
        { path: 'file', content: 'new' },
        { path: 'keep/more', content: 'more' },
        { path: 'blocked/in', content: 'in' },
      ),
    ),
    limits,
  );
  const read = (path: string) => readFileSync(join(workspace, 't', path), 'utf8');
  assert.deepEqual(
    [read('file'), read('keep/kept'), read('keep/more'), read('blocked/in')],
    ['new', 'kept\n', 'more', 'in'],
  );
  const misfit = archive({ path: 'file', content: 'newer' }, { path: 'dir', content: 'no folder' });
  await assert.rejects(volumes.unpack(volumeDir, at('t'), chunks(misfit), limits), code('conflict'));
  assert.equal(read('file'), 'new');
});

test('an archive that is hostile or damaged is refused whole, and changes nothing in or outside of the volume', async () => {
  const { volumes, volumeDir, base, workspace, litter } = newWorld();
  const outside = join(base, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'kept'), 'kept');
  const good = { path: 'good', content: 'good' };
  const file = entry({ path: 'x', content: 'x' });
  const damaged = Buffer.from(file);
  damaged[0] = 0x7a;
  const huge = Buffer.from(file);
  const bad: Record<string, Buffer> = {
    'dots in front': archive(good, { path: '../evil', content: 'x' }),
    'dots within': archive(good, { path: 'a/../../evil', content: 'x' }),
    'dots at the end': archive(good, { path: 'a/..', kind: 'directory' }),
    absolute: archive(good, { path: '/tmp/evil', content: 'x' }),
    'long absolute': archive(good, { path: `/tmp/${'e'.repeat(150)}`, content: 'x' }),
    'through a link': archive(
      good,
      { path: 'l', kind: 'symlink', target: outside },
      { path: 'l/evil', content: 'x' },
    ),
    'through a link of a folder': archive(
      { path: 'l', kind: 'symlink', target: '..' },
      { path: 'l/evil', kind: 'directory' },
    ),
    'folder in the place of a link': archive(
      { path: 'l', kind: 'symlink', target: outside },
      { path: 'l', kind: 'directory' },
      { path: 'l/evil', content: 'x' },
    ),
    'hard link outside': archive(good, { path: 'h', kind: 'hardlink', target: '../../outside/kept' }),
    'hard link absolute': archive(good, { path: 'h', kind: 'hardlink', target: join(outside, 'kept') }),
    'hard link through a link': archive(
      { path: 'l', kind: 'symlink', target: outside },
      { path: 'h', kind: 'hardlink', target: 'l/kept' },
    ),
    'hard link to a link': archive(
      { path: 'l', kind: 'symlink', target: join(outside, 'kept') },
      { path: 'h', kind: 'hardlink', target: 'l' },
    ),
    'hard link to nothing': archive(good, { path: 'h', kind: 'hardlink', target: 'nothing' }),
    device: Buffer.concat([entry(good), retyped(entry({ path: 'dev' }), '3'), tarEnd]),
    'block device': Buffer.concat([entry(good), retyped(entry({ path: 'dev' }), '4'), tarEnd]),
    pipe: Buffer.concat([entry(good), retyped(entry({ path: 'pipe' }), '6'), tarEnd]),
    sparse: Buffer.concat([entry(good), retyped(entry({ path: 'sparse' }), 'S'), tarEnd]),
    'bad checksum': Buffer.concat([entry(good), damaged, tarEnd]),
    'no archive': Buffer.from('this is no archive'.repeat(100)),
    'cut in a header': archive(good).subarray(0, 1300),
    'cut in the content': Buffer.concat([
      entry(good),
      entry({ path: 'x', content: 'x'.repeat(5000) }).subarray(0, 2000),
    ]),
    'endless header': Buffer.concat([
      entry(good),
      retyped(entry({ path: 'x', content: 'x'.repeat(70_000) }), 'x'),
    ]),
    'nonsense in a pax header': Buffer.concat([
      retyped(entry({ path: 'x', content: '99 path=x\n' }), 'x'),
      file,
    ]),
    'negative pax length': Buffer.concat([retyped(entry({ path: 'x', content: '-9 path=x\n' }), 'x'), file]),
    'pax path with dots': Buffer.concat([
      retyped(entry({ path: 'x', content: '21 path=../../evil-x\n' }), 'x'),
      file,
      tarEnd,
    ]),
    'NUL in a pax path': Buffer.concat([
      retyped(entry({ path: 'x', content: '12 path=a\0b\n' }), 'x'),
      file,
      tarEnd,
    ]),
    'a long name': archive(good, { path: 'n'.repeat(256), content: 'x' }),
    'a deep path': archive(good, { path: 'd/'.repeat(300) + 'x', content: 'x' }),
    'a file and a folder': archive({ path: 'x', content: 'x' }, { path: 'x/y', content: 'y' }),
  };
  for (const [name, bytes] of Object.entries(bad)) {
    await assert.rejects(
      volumes.unpack(volumeDir, at('t'), chunks(bytes), limits),
      code('invalid_request'),
      name,
    );
    assert.deepEqual(readdirSync(workspace), [], name);
    assert.deepEqual(litter(), [], name);
  }
  huge.write('77777777777\0', 124, 'latin1');
  const bombs: Record<string, Buffer> = {
    'a huge size': Buffer.concat([retyped(huge, '0'), Buffer.alloc(2048)]),
    'many entries': archive(...Array.from({ length: 1_001 }, (_, index) => ({ path: `f${index}` }))),
    'too many bytes': archive(
      { path: 'a', content: 'x'.repeat(6_000_000) },
      { path: 'b', content: 'x'.repeat(6_000_000) },
    ),
  };
  for (const [name, bytes] of Object.entries(bombs)) {
    await assert.rejects(
      volumes.unpack(volumeDir, at('t'), chunks(bytes), limits),
      code('body_too_large'),
      name,
    );
    assert.deepEqual(readdirSync(workspace), [], name);
  }
  assert.deepEqual(readdirSync(outside), ['kept']);
  assert.ok(
    !existsSync('/tmp/evil') && !existsSync(join(base, 'evil')) && !existsSync(join(volumeDir, 'evil')),
  );
});

test('set-uid bits of an archive are left out, and nothing of it belongs to root', async () => {
  const { volumes, volumeDir, workspace, shell } = newWorld();
  const bytes = archive(
    { path: 'suid', mode: 0o6755, content: '#!/bin/sh\n' },
    { path: 'locked', kind: 'directory', mode: 0o000 },
    { path: 'locked/in', content: 'x' },
    { path: 'l', kind: 'symlink', target: '/etc/shadow' },
    { path: 'new/way/file', content: 'x' },
  );
  await volumes.unpack(volumeDir, at(''), chunks(bytes), limits);
  assert.equal(statSync(join(workspace, 'suid')).mode & 0o7000, 0);
  if (isRoot) {
    const owners = shell('find . -printf "%U:%G\\n" | sort -u');
    assert.equal(owners, `${tenant!.uid}:${tenant!.gid}\n`);
  }
  assert.equal(readFileSync(join(workspace, 'new/way/file'), 'utf8'), 'x');
});

test('an upload that breaks off, and every refused one, leaves no descriptor and no folder behind', async () => {
  const { volumes, volumeDir, litter, workspace } = newWorld();
  const before = openFds(volumeDir);
  async function* breaking() {
    yield archive({ path: 'a', content: 'a' }).subarray(0, 600);
    throw new Error('the client went away');
  }
  await assert.rejects(volumes.unpack(volumeDir, at('t'), breaking(), limits), /went away/);
  await assert.rejects(volumes.unpack(volumeDir, at('t'), chunks(Buffer.from('no')), limits));
  assert.deepEqual([litter(), readdirSync(workspace)], [[], []]);
  assert.equal(openFds(volumeDir), before);
});
