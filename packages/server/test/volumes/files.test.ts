import assert from 'node:assert/strict';
import { existsSync, lstatSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { deed } from '../../src/domain/deeds.ts';
import type { VolumeEntry, VolumeWriteOptions } from '../../src/domain/ports/volume.ts';
import { at, chunks, isRoot, openFds, tenant, textOf, volumeWorld, type VolumeWorld } from './world.ts';
import { inTime, until } from '../support/until.ts';

const worlds: VolumeWorld[] = [];
after(() => worlds.forEach((world) => world.end()));
const newWorld = (parent?: string) => {
  const world = volumeWorld(parent);
  worlds.push(world);
  return world;
};

const unchecked = () => undefined;
const plain: VolumeWriteOptions = { maxBytes: 1_000_000, mode: null, check: unchecked };
const code = (expected: string) => (error: { code?: string }) => {
  assert.equal(error.code, expected, String(error));
  return true;
};

async function readAll({ volumes, volumeDir }: VolumeWorld, path: string): Promise<string> {
  const file = await volumes.open(volumeDir, at(path));
  return (await textOf(file.read(0, file.entry.sizeBytes))).toString();
}

test('a file is written with the folders on its way, belongs to the sandbox, and is read back', async () => {
  const world = newWorld();
  const { volumes, volumeDir, workspace } = world;
  const made = await volumes.write(volumeDir, at('a/b/c.txt'), chunks('hel', 'lo'), plain);
  assert.equal(made.created, true);
  assert.equal(await readAll(world, 'a/b/c.txt'), 'hello');
  for (const path of ['a', 'a/b', 'a/b/c.txt']) {
    const { uid, gid } = statSync(join(workspace, path));
    if (tenant) assert.deepEqual({ uid, gid }, tenant, path);
  }
  assert.equal(statSync(join(workspace, 'a/b/c.txt')).mode & 0o777, 0o644);
  assert.deepEqual(world.litter(), []);
  const stat = await volumes.stat(volumeDir, at('a/b/c.txt'));
  assert.equal(stat.version, made.entry.version);
});

test('a file that is replaced keeps its mode, unless another is asked for, and its version changes', async () => {
  const { volumes, volumeDir, workspace, shell } = newWorld();
  shell('echo one > tool; chmod 755 tool');
  const before = await volumes.stat(volumeDir, at('tool'));
  const { created, entry } = await volumes.write(volumeDir, at('tool'), chunks('two'), plain);
  assert.equal(created, false);
  assert.notEqual(entry.version, before.version);
  assert.equal(statSync(join(workspace, 'tool')).mode & 0o7777, 0o755);
  await volumes.write(volumeDir, at('tool'), chunks('three'), { ...plain, mode: 0o600 });
  assert.equal(statSync(join(workspace, 'tool')).mode & 0o7777, 0o600);
});

test('a write that fails or is too long leaves what was there, and nothing else', async () => {
  const world = newWorld();
  const { volumes, volumeDir } = world;
  await volumes.write(volumeDir, at('kept'), chunks('kept'), plain);
  async function* breaking() {
    yield Buffer.from('half');
    throw new Error('the client went away');
  }
  await assert.rejects(volumes.write(volumeDir, at('kept'), breaking(), plain), /went away/);
  const long = volumes.write(volumeDir, at('kept'), chunks('12345', '67890'), { ...plain, maxBytes: 8 });
  await assert.rejects(long, code('body_too_large'));
  assert.equal(await readAll(world, 'kept'), 'kept');
  assert.deepEqual(world.litter(), []);
  const names = (await volumes.list(volumeDir, at(''), { after: null, limit: 10 })).map((e) =>
    String(e.name),
  );
  assert.deepEqual(names, ['kept']);
});

test('what a crash left of an operation is removed at the next start', async () => {
  const { volumes, base, volumeDir, workspace, litter } = newWorld();
  const left = join(volumeDir, 'staging', 'left', 'it');
  mkdirSync(join(left, 'deep'), { recursive: true });
  writeFileSync(join(left, 'deep', 'file'), 'half');
  writeFileSync(join(workspace, 'kept'), 'kept');
  if (tenant) {
    const { execFileSync } = await import('node:child_process');
    execFileSync('chown', ['-R', `${tenant.uid}:${tenant.gid}`, join(volumeDir, 'staging', 'left')]);
  }
  await volumes.clearInterrupted(base);
  assert.deepEqual(litter(), []);
  assert.equal(readFileSync(join(workspace, 'kept'), 'utf8'), 'kept');
});

test('ranges of a file are read, and one that was cut off meanwhile fails instead of ending early', async () => {
  const world = newWorld();
  const { volumes, volumeDir, shell } = world;
  await volumes.write(volumeDir, at('digits'), chunks('0123456789'), plain);
  const part = await volumes.open(volumeDir, at('digits'));
  assert.equal((await textOf(part.read(3, 6))).toString(), '345');
  const none = await volumes.open(volumeDir, at('digits'));
  assert.equal((await textOf(none.read(0, 0))).toString(), '');
  const cut = await volumes.open(volumeDir, at('digits'));
  shell('truncate -s 4 digits');
  await assert.rejects(textOf(cut.read(0, 10)), /shorter/);
});

test('a folder is listed by name in pages with types, sizes, modes and the targets of links', async () => {
  const { volumes, volumeDir, shell } = newWorld();
  shell('mkdir d; echo 12345 > f; chmod 640 f; ln -s ../../etc/shadow l; mkfifo p');
  const first = await volumes.list(volumeDir, at(''), { after: null, limit: 3 });
  assert.deepEqual(
    first.map(({ name, type, sizeBytes, target }) => [
      String(name),
      type,
      sizeBytes,
      target && String(target),
    ]),
    [
      ['d', 'folder', 0, null],
      ['f', 'file', 6, null],
      ['l', 'link', 0, '../../etc/shadow'],
    ],
  );
  assert.equal(first[1]!.mode, 0o640);
  const second = await volumes.list(volumeDir, at(''), { after: first.at(-1)!.name, limit: 3 });
  assert.deepEqual(
    second.map(({ name, type }) => [String(name), type]),
    [['p', 'other']],
  );
});

test('links are followed nowhere: not at any place of a path, to read, list, write, delete or archive', async () => {
  const { volumes, volumeDir, base, workspace, shell } = newWorld();
  const outside = join(base, 'outside');
  mkdirSync(outside);
  writeFileSync(join(outside, 'shadow'), 'root-only');
  shell(
    `ln -s ${outside} dir; ln -s ${outside}/shadow file; mkdir -p a/b; ln -s ${outside} a/b/dir; ln -s /etc etc`,
  );
  for (const path of ['dir/shadow', 'a/b/dir/shadow', 'etc/shadow', 'dir', 'file']) {
    const isLink = !path.includes('shadow');
    const wanted = code(isLink ? 'conflict' : 'not_found');
    await assert.rejects(volumes.open(volumeDir, at(path)), wanted, path);
    await assert.rejects(volumes.list(volumeDir, at(path), { after: null, limit: 5 }), wanted, path);
    await assert.rejects(volumes.archive(volumeDir, at(path)), wanted, path);
    if (!isLink) {
      await assert.rejects(volumes.write(volumeDir, at(path), chunks('x'), plain), code('conflict'), path);
      await assert.rejects(volumes.remove(volumeDir, at(path), true, unchecked), code('not_found'), path);
      await assert.rejects(volumes.makeFolder(volumeDir, at(`${path}/x`)), code('conflict'), path);
    }
  }
  // A link itself is replaced or deleted, and what it leads to stays.
  await volumes.write(volumeDir, at('file'), chunks('mine'), plain);
  assert.ok(lstatSync(join(workspace, 'file')).isFile());
  await volumes.remove(volumeDir, at('dir'), true, unchecked);
  assert.ok(!existsSync(join(workspace, 'dir')));
  assert.equal(readFileSync(join(outside, 'shadow'), 'utf8'), 'root-only');
});

test('a pipe, a socket and a device do not block and are not read', async () => {
  const { volumes, volumeDir, shell, workspace } = newWorld();
  shell('mkfifo fifo');
  if (isRoot) {
    const { execFileSync } = await import('node:child_process');
    execFileSync('mknod', [join(workspace, 'zero'), 'c', '1', '5']);
  }
  for (const name of isRoot ? ['fifo', 'zero'] : ['fifo']) {
    // More than the threads of libuv's pool, which a pipe without a writer would hold for ever.
    const tries = Array.from({ length: 16 }, () => volumes.open(volumeDir, at(name)));
    const results = await inTime('all tries have ended', Promise.allSettled(tries));
    for (const result of results) assert.equal(result.status, 'rejected');
    const archive = inTime('the archive is refused', volumes.archive(volumeDir, at(name)));
    await assert.rejects(archive, code('conflict'));
  }
  const archive = await textOf(await volumes.archive(volumeDir, at('')));
  assert.equal(archive.length, 1024);
  await volumes.remove(volumeDir, at('fifo'), false, unchecked);
});

test('a folder is deleted only when empty, or with all that is in it, whatever its owner closed in it', async () => {
  const { volumes, volumeDir, shell, workspace, litter } = newWorld();
  shell('mkdir empty; mkdir -p full/a/b; echo x > full/a/b/c; chmod 000 full/a/b; chmod 500 full/a');
  await volumes.remove(volumeDir, at('empty'), false, unchecked);
  await assert.rejects(volumes.remove(volumeDir, at('full'), false, unchecked), code('conflict'));
  await volumes.remove(volumeDir, at('full'), true, unchecked);
  assert.ok(!existsSync(join(workspace, 'full')));
  await assert.rejects(volumes.remove(volumeDir, at('full'), true, unchecked), code('not_found'));
  await assert.rejects(volumes.remove(volumeDir, at(''), true, unchecked), code('conflict'));
  assert.deepEqual(litter(), []);
});

test('a folder that is nested a thousand times is deleted, and refused as an archive, without a crash', async () => {
  const { volumes, volumeDir, shell, workspace } = newWorld('/dev/shm');
  // As many at once as fit a path.
  const some = 'aaaaaaaaaaaaaaaa/'.repeat(200);
  shell(`mkdir deep; cd -P deep; for i in 1 2 3 4 5; do mkdir -p ${some}; cd -P ${some}; done`);
  const before = openFds(volumeDir);
  const archive = await volumes.archive(volumeDir, at('deep'));
  await assert.rejects(textOf(archive), code('conflict'));
  assert.equal(openFds(volumeDir), before);
  await volumes.remove(volumeDir, at('deep'), true, unchecked);
  assert.ok(!existsSync(join(workspace, 'deep')));
});

test('twenty thousand files in a folder are listed in pages, in their order', async () => {
  const { volumes, volumeDir, shell } = newWorld('/dev/shm');
  shell('mkdir many; cd many; seq -f "file-%06.0f" 20000 | xargs touch');
  const names: string[] = [];
  let after: Buffer | null = null;
  for (let page = 0; page < 3; page += 1) {
    const entries = await volumes.list(volumeDir, at('many'), { after, limit: 100 });
    names.push(...entries.map(({ name }) => String(name)));
    after = entries.at(-1)!.name;
  }
  assert.deepEqual(names.slice(0, 2), ['file-000001', 'file-000002']);
  assert.equal(names.length, 300);
  assert.equal(names.at(-1), 'file-000300');
});

test('names that are no text are listed as the bytes they are, and read by them', async () => {
  const { volumes, volumeDir, shell } = newWorld();
  shell(
    String.raw`printf a > "$(printf 'x\ny')"; printf b > "$(printf '\377\376')"; printf c > "$(printf '\033[2J')"`,
  );
  const entries = await volumes.list(volumeDir, at(''), { after: null, limit: 10 });
  assert.deepEqual(
    entries.map(({ name }) => name.toString('hex')),
    ['1b5b324a', '780a79', 'fffe'],
  );
  for (const { name } of entries) {
    const file = await volumes.open(volumeDir, { tree: 'workspace', names: [name] });
    assert.equal((await textOf(file.read(0, 1))).length, 1);
  }
});

test(
  'files that a sandbox swaps for links all the time are read as themselves or not at all',
  { timeout: 60_000 },
  async () => {
    const { volumes, volumeDir, base, workspace } = newWorld();
    const outside = join(base, 'outside');
    mkdirSync(join(outside, 'sub'), { recursive: true });
    writeFileSync(join(outside, 'secret'), 'SECRET');
    writeFileSync(join(outside, 'sub', 'secret'), 'SECRET');
    const { spawn } = await import('node:child_process');
    const script = `mkdir -p real/sub; echo mine > real/secret; echo mine > real/sub/secret; ln -sfn ${outside} evil
    while :; do ln -sfn ${outside} d.new; mv -T d.new d; rm -f d; cp -r real d.dir; mv -T d.dir d; echo mine > f.new; mv -f f.new f
      ln -sfn ${outside}/secret f.new; mv -fT f.new f; rm -rf d; done`;
    const child = spawn('/bin/sh', ['-c', script], { cwd: workspace, ...tenant, stdio: 'ignore' });
    const seen = { read: 0, refused: 0 };
    try {
      const startedMs = performance.now();
      // Three seconds; or, where the disk is slow to write, until both have been met.
      const isEnough = (ms: number): boolean =>
        ms > 50_000 || (ms > 3_000 && seen.read > 0 && seen.refused > 0);
      while (!isEnough(performance.now() - startedMs)) {
        for (const path of ['d/secret', 'd/sub/secret', 'f']) {
          try {
            const file = await volumes.open(volumeDir, at(path));
            const text = (await textOf(file.read(0, file.entry.sizeBytes))).toString();
            assert.ok(text === 'mine\n' || text === '', `${path}: ${text}`);
            seen.read += 1;
          } catch (error) {
            if (error instanceof assert.AssertionError) throw error;
            seen.refused += 1;
          }
        }
        await volumes.write(volumeDir, at('d/sub/written'), chunks('written'), plain).catch(() => undefined);
        await volumes.remove(volumeDir, at('d/sub'), true, unchecked).catch(() => undefined);
        for await (const piece of await volumes.archive(volumeDir, at('')))
          assert.ok(!piece.includes('SECRET'));
      }
    } finally {
      child.kill('SIGKILL');
    }
    assert.ok(seen.read > 0 && seen.refused > 0, JSON.stringify(seen));
    assert.ok(!existsSync(join(outside, 'sub', 'written')));
    assert.equal(readFileSync(join(outside, 'sub', 'secret'), 'utf8'), 'SECRET');
  },
);

test('a stream that nobody reads, or that is left in its middle, keeps no descriptor', async () => {
  const { volumes, volumeDir, shell } = newWorld();
  shell('head -c 3000000 /dev/zero > big; mkdir d; cp big d/a; cp big d/b');
  const before = openFds(volumeDir);
  (await volumes.open(volumeDir, at('big'))).close();
  const unread = (await volumes.open(volumeDir, at('big'))).read(0, 3_000_000);
  const closed = new Promise((resolve) => unread.once('close', resolve));
  unread.destroy();
  await closed;
  for await (const piece of (await volumes.open(volumeDir, at('big'))).read(0, 3_000_000)) {
    assert.ok(piece.length > 0);
    break;
  }
  for await (const piece of await volumes.archive(volumeDir, at(''))) {
    assert.ok(piece.length > 0);
    break;
  }
  const { until } = await import('../support/until.ts');
  await until('all are closed', () => openFds(volumeDir) === before);
});

test('a file that lost its name while it was read gives its room back in a deed, and any other one is closed at once', async () => {
  const { volumes, volumeDir, shell } = newWorld();
  shell('echo one > gone; echo two > kept');
  const gone = await volumes.open(volumeDir, at('gone'));
  const kept = await volumes.open(volumeDir, at('kept'));
  shell('rm gone');
  const { promise, resolve: thaw } = Promise.withResolvers<void>();
  const hanging = deed(volumeDir, () => promise);
  gone.close();
  kept.close();
  assert.equal(openFds(volumeDir), 1);
  thaw();
  await hanging;
  await until('it is closed', () => openFds(volumeDir) === 0);
});

test('a change is checked against what is there in its moment, and one that is refused changes nothing', async () => {
  const { volumes, volumeDir, shell } = newWorld();
  const refuse = { ...plain, check: () => assert.fail('refused') };
  shell('echo kept > kept');
  const told: (string | null)[] = [];
  const tell = (present: VolumeEntry | null) => void told.push(present && present.version);
  const { entry } = await volumes.write(volumeDir, at('kept'), chunks('new'), { ...plain, check: tell });
  await volumes.write(volumeDir, at('a/b'), chunks('new'), { ...plain, check: tell });
  await volumes.remove(volumeDir, at('a/b'), false, tell);
  const [before, none, removed] = told;
  assert.ok(before && removed && before !== entry.version);
  assert.equal(none, null);
  const state = shell('find . -printf "%P %i %T@\\n" | sort');
  for (const path of ['kept', 'c/d'])
    await assert.rejects(volumes.write(volumeDir, at(path), chunks('x'), refuse), /refused/);
  for (const path of ['kept', 'a'])
    await assert.rejects(volumes.remove(volumeDir, at(path), true, refuse.check), /refused/);
  assert.equal(shell('find . -printf "%P %i %T@\\n" | sort'), state);
  // Neither a time that a program sets nor a length that stays hides a change.
  const version = () => volumes.stat(volumeDir, at('kept')).then((found) => found.version);
  const first = await version();
  shell('cp -p kept copy; printf NEW > kept; touch -r copy kept');
  assert.notEqual(await version(), first);
});
