import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { syncWorkspace } from '../src/workspace.ts';
import type { SyncResult } from '../src/workspace.ts';
import { LaunchError } from '../src/settings.ts';

interface Ground {
  root: string;
  workspace: string;
  notes: string[];
  /** Commits these files (a leading `!` makes one executable, `->x` a link to x) and deploys them. */
  deploy: (files: Record<string, string>) => SyncResult | null;
  commit: (files: Record<string, string>) => string;
  sync: (commit: string) => SyncResult | null;
  read: (path: string) => string;
}

function ground(context: TestContext): Ground {
  const root = mkdtempSync(join(tmpdir(), 'berth-workspace-'));
  context.after(() => rmSync(root, { recursive: true, force: true }));
  for (const name of ['workspace', 'home', 'repo']) mkdirSync(join(root, name));
  const repo = join(root, 'repo');
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', repo, '-c', 'user.name=a', '-c', 'user.email=a@b.invalid', ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  git('init', '-q');
  const notes: string[] = [];
  const self: Ground = {
    root,
    workspace: join(root, 'workspace'),
    notes,
    commit: (files) => {
      for (const name of readdirSync(repo))
        if (name !== '.git') rmSync(join(repo, name), { recursive: true });
      for (const [name, text] of Object.entries(files)) {
        const path = join(repo, name.replace(/^!/, ''));
        mkdirSync(dirname(path), { recursive: true });
        if (text.startsWith('->')) symlinkSync(text.slice(2), path);
        else writeFileSync(path, text);
        if (name.startsWith('!')) chmodSync(path, 0o755);
      }
      git('add', '-A');
      git('commit', '-q', '--allow-empty', '-m', 'x');
      git('archive', '--format=tar', '-o', join(root, 'release.tar'), 'HEAD');
      return git('rev-parse', 'HEAD').trim();
    },
    sync: (commit) =>
      syncWorkspace({
        workspace: join(root, 'workspace'),
        home: join(root, 'home'),
        archive: join(root, 'release.tar'),
        commit,
        note: (line) => notes.push(line),
      }),
    deploy: (files) => self.sync(self.commit(files)),
    read: (path) => readFileSync(join(root, 'workspace', path), 'utf8'),
  };
  return self;
}

test('a first deployment brings files, folders, links and executable bits', (t) => {
  const { deploy, read, workspace } = ground(t);
  const deep = `${'long-folder-name-'.repeat(5)}/`.repeat(3);
  const result = deploy({
    'a.txt': 'A',
    '!run.sh': '#!/bin/sh\n',
    link: '->a.txt',
    [`${deep}ü.txt`]: 'deep',
    empty: '',
  });
  assert.deepEqual(result, { written: 5, deleted: 0, kept: [] });
  assert.equal(read('a.txt'), 'A');
  assert.equal(read(`${deep}ü.txt`), 'deep');
  assert.equal(read('empty'), '');
  assert.equal(readlinkSync(join(workspace, 'link')), 'a.txt');
  assert.equal(statSync(join(workspace, 'run.sh')).mode & 0o777, 0o755);
  assert.equal(statSync(join(workspace, 'a.txt')).mode & 0o777, 0o644);
});

test('the same commit again reads nothing, not even the archive', (t) => {
  const { commit, sync, root } = ground(t);
  const id = commit({ 'a.txt': 'A' });
  sync(id);
  rmSync(join(root, 'release.tar'));
  assert.equal(sync(id), null);
});

test('a next deployment replaces, adds and deletes what the agent left alone, and keeps what it changed', (t) => {
  const { deploy, read, workspace, notes } = ground(t);
  deploy({
    same: '1',
    updated: '1',
    changed: '1',
    dropped: '1',
    'dropped-changed': '1',
    gone: '1',
    'dir/only': '1',
  });
  writeFileSync(join(workspace, 'changed'), 'by the agent');
  writeFileSync(join(workspace, 'dropped-changed'), 'by the agent');
  writeFileSync(join(workspace, 'own'), 'by the agent');
  rmSync(join(workspace, 'gone'));
  const result = deploy({ same: '1', updated: '2', changed: '2', gone: '2', added: '2', own: 'from git' });
  assert.equal(read('updated'), '2');
  assert.equal(read('added'), '2');
  assert.equal(read('changed'), 'by the agent');
  assert.equal(read('dropped-changed'), 'by the agent');
  assert.equal(read('own'), 'by the agent');
  assert.deepEqual(readdirSync(workspace).sort(), [
    'added',
    'changed',
    'dropped-changed',
    'own',
    'same',
    'updated',
  ]);
  assert.deepEqual(result?.kept.sort(), ['changed', 'dropped-changed', 'gone', 'own']);
  assert.match(notes.join(), /4 changed by the agent and kept/);
});

test('what the agent changed stays its own over later deployments, until both agree', (t) => {
  const { deploy, read, workspace } = ground(t);
  deploy({ f: '1' });
  writeFileSync(join(workspace, 'f'), 'mine');
  deploy({ f: '2' });
  deploy({ f: '3' });
  assert.equal(read('f'), 'mine');
  assert.deepEqual(deploy({ f: 'mine' })?.kept, []);
  deploy({ f: '5' });
  assert.equal(read('f'), '5');
});

test('a changed executable bit and a file that became a link count as changes', (t) => {
  const { deploy, read, workspace } = ground(t);
  deploy({ script: '1', file: '1', link: '->file' });
  chmodSync(join(workspace, 'script'), 0o755);
  rmSync(join(workspace, 'link'));
  writeFileSync(join(workspace, 'link'), 'a file now');
  const result = deploy({ script: '2', file: '2', link: '->script' });
  assert.deepEqual(result?.kept.sort(), ['link', 'script']);
  assert.equal(read('file'), '2');
});

test('a folder takes the place of a file and the other way round', (t) => {
  const { deploy, read } = ground(t);
  deploy({ a: 'file', 'b/c': 'in folder' });
  deploy({ 'a/x': 'in folder', b: 'file' });
  assert.equal(read('a/x'), 'in folder');
  assert.equal(read('b'), 'file');
});

test('nothing is written through a link that the agent put in the place of a folder', (t) => {
  const { deploy, workspace, root } = ground(t);
  deploy({ 'dir/a': '1' });
  rmSync(join(workspace, 'dir'), { recursive: true });
  symlinkSync(join(root, 'home'), join(workspace, 'dir'));
  const result = deploy({ 'dir/a': '2', 'dir/b': '2' });
  assert.deepEqual(result?.kept.sort(), ['dir/a', 'dir/b']);
  assert.ok(!existsSync(join(root, 'home', 'b')));
});

test('a deployment that was interrupted at any file is finished by the next, also by another commit', (t) => {
  const { commit, sync, workspace, read, root } = ground(t);
  sync(commit({ a: '1', b: '1', c: '1', dropped: '1' }));
  const second = commit({ a: '2', b: '2', c: '2' });
  // The state in the middle is made by hand: `a` is written, `dropped` deleted, `b` and `c` are still to come.
  const manifest = join(root, 'home', '.berth', 'manifest.json');
  const before = JSON.parse(readFileSync(manifest, 'utf8'));
  sync(second);
  const after = JSON.parse(readFileSync(manifest, 'utf8'));
  writeFileSync(
    manifest,
    JSON.stringify({ commit: before.commit, pending: after.files, files: before.files }),
  );
  writeFileSync(join(workspace, 'b'), '1');
  rmSync(join(workspace, 'c'));
  writeFileSync(join(workspace, 'c'), '1');
  const result = sync(commit({ a: '3', b: '3', c: '3', dropped: '3' }));
  assert.deepEqual(result?.kept, []);
  assert.deepEqual(['a', 'b', 'c', 'dropped'].map(read), ['3', '3', '3', '3']);
});

test('a damaged manifest makes every file the agent’s own and breaks nothing', (t) => {
  const { deploy, read, root } = ground(t);
  deploy({ a: '1' });
  writeFileSync(join(root, 'home', '.berth', 'manifest.json'), '{"commit":');
  deploy({ a: '2', b: '2' });
  assert.equal(read('a'), '1');
  assert.equal(read('b'), '2');
});

function tarOf(entries: { path: string; type?: string; target?: string; text?: string }[]): Buffer {
  const blocks = entries.flatMap(({ path, type = '0', target = '', text = '' }) => {
    const header = Buffer.alloc(512);
    header.write(path, 0);
    header.write('0000644\0', 100);
    header.write(`${Buffer.byteLength(text).toString(8).padStart(11, '0')}\0`, 124);
    header.write('        ', 148);
    header.write(type, 156);
    header.write(target, 157);
    header.write('ustar\x0000', 257);
    const sum = header.reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const body = Buffer.alloc(Math.ceil(Buffer.byteLength(text) / 512) * 512);
    body.write(text);
    return [header, body];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

test('entries that lead out of the workspace or into .git are left out, which is said', (t) => {
  const { sync, workspace, root, notes } = ground(t);
  writeFileSync(
    join(root, 'release.tar'),
    tarOf([
      { path: '../outside', text: 'x' },
      { path: 'a/../../outside', text: 'x' },
      { path: '/outside', text: 'x' },
      { path: '.git/config', text: 'x' },
      { path: 'sub/.GIT/hooks/post-checkout', text: 'x' },
      { path: 'link', type: '2', target: '../outside' },
      { path: 'absolute', type: '2', target: '/etc/passwd' },
      { path: 'into-git', type: '2', target: '.git/hooks' },
      { path: 'hard', type: '1', target: '/etc/passwd' },
      { path: 'device', type: '3' },
      { path: 'folder', type: '2', target: 'other' },
      { path: 'folder/through', text: 'x' },
      { path: './fine', text: 'fine' },
    ]),
  );
  sync('b'.repeat(40));
  const [leftOut, kept] = notes;
  assert.match(leftOut!, /^10 left out of the workspace: "\.\.\/outside", .*"device"$/);
  assert.equal(kept, '1 changed by the agent and kept as they are: "folder/through"');
  assert.deepEqual(readdirSync(workspace).sort(), ['fine', 'folder']);
  assert.ok(lstatSync(join(workspace, 'folder')).isSymbolicLink());
  assert.deepEqual(readdirSync(root).sort(), ['home', 'release.tar', 'repo', 'workspace']);
});

test('an archive that is missing, cut off, damaged or of another commit ends with the exit code of the contract', (t) => {
  const { commit, sync, root } = ground(t);
  const archive = join(root, 'release.tar');
  const refused = (id: string) =>
    assert.throws(
      () => sync(id),
      (error: unknown) => error instanceof LaunchError && error.exitCode === 65,
    );
  refused('c'.repeat(40));
  const id = commit({ a: 'A'.repeat(2000) });
  const whole = readFileSync(archive);
  refused('c'.repeat(40));
  writeFileSync(archive, whole.subarray(0, 1800));
  refused(id);
  const damaged = Buffer.from(whole);
  damaged[1024 + 3] = 120;
  writeFileSync(archive, damaged);
  refused(id);
});
