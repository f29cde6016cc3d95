import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, readFileSync, readdirSync } from 'node:fs';
import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { limits } from '../../src/domain/limits.ts';
import type { Attachment } from '../../src/domain/ports/channel.ts';
import { checkCells, type AttackTable } from '../sandbox/attack-table.ts';
import { inTime } from '../support/until.ts';
import {
  assertHostIsWhole,
  agent,
  ask,
  attachments,
  closeWorld,
  deploy,
  edge,
  fetched,
  forged,
  fx,
  git,
  hostDir,
  marker,
  of,
  openWorld,
  placeOf,
  raw,
  restore,
  save,
  snapshot,
  tarOf,
  volumeDir,
  workspace,
} from './attack-world.ts';

// What an agent, or who writes to it, leaves for the service to stumble over: links, pipes, names, archives, a repository.
// A real sandbox makes it; then the service does what it does with files of agents, on the host and with its own rights.

type Place = 'files API' | 'deploys' | 'snapshots' | 'attachments';
const places = ['files API', 'deploys', 'snapshots', 'attachments'] as const;

interface HostAttack {
  id: string;
  title: string;
  /** Why it cannot be tried at a place that has no attempt. */
  why: string;
  /** Each rejects when the attack got through. */
  attempts: Partial<Record<Place, () => Promise<void>>>;
}

let missing: string | null = null;
before(async () => {
  missing = await openWorld();
});
after(closeWorld);

const linksAttack: HostAttack = {
  id: '28',
  title: 'Links to files and folders of the host, at every place of a path',
  why: '',
  attempts: {
    async 'files API'() {
      await agent(`rm -rf * .[!.]*; ln -s ${hostDir} dir; ln -s ${hostDir}/secret file; mkdir a; ln -s ${hostDir} a/dir
        ln -s /proc/1/root${hostDir}/secret proc; ln -s ../../../host up`);
      for (const path of [
        '/file',
        '/proc',
        '/dir/secret',
        '/a/dir/secret',
        '/up/secret',
        '/dir/',
        '/a/dir/',
      ]) {
        const read = await ask('GET', path);
        const packed = await ask('GET', `${path}?archive=tar`);
        assert.ok(read.status >= 400 && packed.status >= 400, `${path}: ${read.status}, ${packed.status}`);
        assertHostIsWhole(read.text, packed.text);
      }
      for (const path of ['/dir/new', '/a/dir/new', '/dir/secret']) {
        assert.ok((await ask('PUT', path, Buffer.from('x'))).status >= 400, path);
        assert.ok((await ask('DELETE', path)).status >= 400, path);
      }
      // The link itself is the agent's, and can be replaced.
      assert.equal((await ask('PUT', '/file', Buffer.from('mine'))).status, 200);
      assertHostIsWhole((await ask('GET', '/?archive=tar')).text);
    },
    async deploys() {
      const tree = await git.workTree({ 'real.txt': 'real\n' });
      for (const name of ['agent.json', 'AGENTS.md'])
        await symlink(join(hostDir, 'secret'), join(tree, name));
      await symlink(hostDir, join(tree, 'folder'));
      await git.commit(tree, {});
      const { archive, listed, pushed, items } = await deploy(tree);
      assertHostIsWhole(JSON.stringify(items), pushed.stderr, archive ?? '');
      if (archive) assert.match(listed, /^l.* folder -> /m);
    },
    async snapshots() {
      await agent(
        `rm -rf * .[!.]*; mkdir d; echo mine > d/secret; ln -s ${hostDir}/secret file; ln -s ${hostDir} folder`,
      );
      const id = await snapshot();
      // What is restored would go where the link leads.
      await agent(`rm -rf d; ln -s ${hostDir} d; rm file; ln -s ${hostDir}/secret file`);
      await restore(id);
      assertHostIsWhole(await agent('cat d/secret; readlink file folder'));
      assert.ok(lstatSync(join(workspace, 'd')).isDirectory());
      assert.ok(lstatSync(join(workspace, 'file')).isSymbolicLink());
    },
    async attachments() {
      await agent(`rm -rf * .[!.]*; ln -s ${hostDir} attachments`);
      const [line] = await save('links', 'secret');
      assert.match(line!, /not there, it could not be written/);
      await agent('rm attachments');
      const place = placeOf((await save('links', 'secret'))[0]);
      await agent(`rm ${place}; ln -s ${hostDir}/new ${place}`);
      await save('links', 'secret');
      assertHostIsWhole();
    },
  },
};

const pipesAttack: HostAttack = {
  id: '31',
  title: 'A pipe or a socket where a file is expected: who opens it waits for ever',
  why: '',
  attempts: {
    async 'files API'() {
      await agent(`rm -rf * .[!.]*; mkfifo pipe; mkdir d; mkfifo d/pipe; echo a > file
        perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un("socket")) or die $!'`);
      // More than the threads that a pipe without a writer would hold.
      const asked = Array.from({ length: 16 }, () => ask('GET', '/pipe'));
      for (const { status } of await Promise.all(asked)) assert.equal(status, 409);
      assert.equal((await ask('GET', '/socket')).status, 409);
      const archive = await ask('GET', '/?archive=tar');
      assert.equal(archive.status, 200);
      assert.ok(archive.text.includes('file') && !archive.text.includes('pipe'));
    },
    async deploys() {
      const tree = await forged(({ blob }) => [
        ['100644', 'file', blob],
        ['10644', 'pipe', blob],
      ]);
      const { archive, listed, isThere } = await inTime('it is deployed or refused', deploy(tree));
      if (archive) assert.doesNotMatch(listed, /^[^-dl]/m);
      else assert.ok(!isThere, 'a commit is there of which nothing can be made');
    },
    async snapshots() {
      await agent('rm -rf * .[!.]*; mkfifo pipe; echo a > file');
      const id = await snapshot();
      await agent('rm pipe file; mkfifo file');
      await restore(id);
      assert.ok(lstatSync(join(workspace, 'file')).isFile());
    },
    async attachments() {
      await agent('rm -rf * .[!.]*');
      const place = placeOf((await save('pipes', 'a.txt'))[0]);
      await agent(`rm ${place}; mkfifo ${place}`);
      await save('pipes', 'a.txt');
      assert.ok(lstatSync(join(workspace, place)).isFIFO(), 'what is there already is not replaced');
    },
  },
};

/** A repository in the workspace whose every program makes the marker. */
const armed = (touch: string) => `rm -rf * .[!.]*; git init -q .
  cat > .git/config <<'END'
[core]
  repositoryformatversion = 0
  fsmonitor = ${touch}
  hooksPath = /workspace/.git/hooks
  sshCommand = ${touch}
  pager = ${touch}
  editor = ${touch}
[diff]
  external = ${touch}
[filter "evil"]
  clean = ${touch}
  smudge = ${touch}
  process = ${touch}
[credential]
  helper = "!${touch}"
[gc]
  auto = 1
END
  echo '* filter=evil diff=evil' > .gitattributes; echo text > file
  for hook in pre-commit post-checkout post-commit pre-receive post-receive update reference-transaction; do
    printf '#!/bin/sh\\n%s\\n' '${touch}' > .git/hooks/$hook; chmod 755 .git/hooks/$hook; done`;

const gitAttack: HostAttack = {
  id: '32',
  title: 'A `.git/config` whose `fsmonitor`, filters and hooks are programs, for a git of the host to run',
  why: '',
  attempts: {
    async 'files API'() {
      await agent(armed(`touch ${marker}`));
      assert.match((await ask('GET', '/.git/config')).text, /fsmonitor/);
      assert.equal((await ask('GET', '/.git/')).status, 200);
      assert.equal((await ask('GET', '/?archive=tar')).status, 200);
      assert.equal((await ask('PUT', '/file', Buffer.from('new'))).status, 200);
      const packed = tarOf({ path: '.git/hooks/post-index-change', mode: 0o755, content: `touch ${marker}` });
      assert.equal((await ask('PUT', '/', packed, 'application/x-tar')).status, 200);
      assert.equal((await ask('DELETE', '/file')).status, 204);
      assert.ok(!existsSync(marker), 'a program of the agent ran on the host');
    },
    async deploys() {
      const touch = `touch ${marker}`;
      const config = `[core]\n\tfsmonitor = ${touch}\n\thooksPath = hooks\n[filter "evil"]\n\tsmudge = ${touch}\n`;
      const files = {
        '.gitattributes': '* filter=evil diff=evil merge=evil\n',
        // A repository without a work tree, in the midst of files, which git finds by itself.
        ...{ 'inner/HEAD': 'ref: refs/heads/main\n', 'inner/config': config },
        ...{ 'inner/refs/x': '', 'inner/objects/x': '', 'hooks/post-receive': `#!/bin/sh\n${touch}\n` },
      };
      const { archive, pushed } = await deploy(await git.workTree(files));
      assert.equal(pushed.code, 0, pushed.stderr);
      assert.ok(archive);
      const module = `[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n\tupdate = !${touch}\n`;
      const moduled = await deploy(await git.workTree({ '.gitmodules': module }));
      assert.notEqual(moduled.pushed.code, 0, 'a command to update a submodule by came in');
      const evil = await forged(({ blob }) => [['100644', '.git', blob]]);
      assert.notEqual((await deploy(evil)).pushed.code, 0, 'a .git of an agent came in');
      assert.ok(!existsSync(marker), 'a program of the agent ran on the host');
    },
    async snapshots() {
      await agent(armed(`touch ${marker}`));
      const id = await snapshot();
      await agent('rm -rf .git');
      await restore(id);
      assert.match(readFileSync(join(workspace, '.git/config'), 'utf8'), /fsmonitor/);
      assert.ok(!existsSync(marker), 'a program of the agent ran on the host');
    },
    async attachments() {
      await agent(armed(`touch ${marker}`));
      const hook = Buffer.from(`#!/bin/sh\ntouch ${marker}\n`);
      for (const name of ['.git/hooks/pre-commit', '../../.git/hooks/pre-commit', '.gitattributes']) {
        const place = placeOf((await save('git', name, hook))[0]);
        assert.match(place, /^attachments\/[0-9a-f]{16}\/\w[\w.-]*$/);
        assert.equal(lstatSync(join(workspace, place)).mode & 0o111, 0);
      }
      assert.ok(!existsSync(marker), 'a program of the agent ran on the host');
      // It was a trap: a git that works in it does run them.
      spawnSync('git', ['-c', 'safe.directory=*', 'status'], {
        cwd: workspace,
        env: { PATH: process.env['PATH'] },
      });
      assert.ok(existsSync(marker), 'the attack would have been none');
    },
  },
};

const archivesAttack: HostAttack = {
  id: '35',
  title: '`..`, absolute paths and links in archives and trees',
  why: 'what a snapshot is restored from was written by the service: an agent hands in none',
  attempts: {
    async 'files API'() {
      await agent(`rm -rf * .[!.]*; ln -s ${hostDir} out; mkdir to; ln -s ${hostDir} to/out`);
      const content = 'x';
      const bad: Record<string, Buffer> = {
        dots: tarOf({ path: '../../../host/evil', content }),
        'dots within': tarOf({ path: 'a/../../../host/evil', content }),
        absolute: tarOf({ path: join(hostDir, 'evil'), content }),
        'a link of the archive': tarOf(
          { path: 'l', kind: 'symlink', target: hostDir },
          { path: 'l/evil', content },
        ),
        'a hard link': tarOf({ path: 'h', kind: 'hardlink', target: join(hostDir, 'secret') }),
        'a hard link through a link': tarOf(
          { path: 'l', kind: 'symlink', target: hostDir },
          { path: 'h', kind: 'hardlink', target: 'l/secret' },
        ),
      };
      for (const [name, bytes] of Object.entries(bad)) {
        const { status } = await ask('PUT', '/to/', bytes, 'application/x-tar');
        assert.equal(status, 400, name);
      }
      // A link that was there before the archive came.
      for (const target of ['/to/', '/out/'])
        await ask('PUT', target, tarOf({ path: 'out/evil', content }), 'application/x-tar');
      assertHostIsWhole((await ask('GET', '/?archive=tar')).text);
    },
    async deploys() {
      const trees: [mode: string, name: string][][] = [
        [['100644', '..']],
        [['100644', '../evil']],
        [['100644', '/tmp/evil']],
        // A link, and a folder of the same name whose files would go where it leads.
        [
          ['120000', 'l'],
          ['40000', 'l'],
        ],
      ];
      for (const entries of trees) {
        const tree = await forged(({ blob, folder }) =>
          entries.map(([mode, name]) => [mode, name, mode === '40000' ? folder : blob]),
        );
        const { pushed, archive } = await deploy(tree);
        assert.notEqual(pushed.code, 0, JSON.stringify(entries));
        assert.match(pushed.stderr, /remote: (error|fatal)/);
        assert.equal(archive, null);
      }
      assertHostIsWhole();
    },
    async attachments() {
      await agent('rm -rf * .[!.]*');
      const bytes = tarOf({ path: '../../../../host/evil', content: 'x' });
      const place = placeOf((await save('archives', '../../../host/evil.tar', bytes))[0]);
      assert.match(place, /^attachments\/[0-9a-f]{16}\/evil\.tar$/);
      assert.deepEqual(readFileSync(join(workspace, place)), bytes, 'it is one file, as it was sent');
      assertHostIsWhole();
    },
  },
};

const ESCAPES = '\x1b[2J\x1b]0;owned\x07';
/** The same in one character each, for terminals that obey those, and one that deletes. */
const ODD = '\x9b2J\x9d0;owned\x9c\x7f';
// oxlint-disable-next-line no-control-regex
const control = /[\x00-\x1f\x7f-\x9f]/;
/** No line of what is shown has a control character, or is one that a name has made. */
function assertPlain(text: string): void {
  for (const line of text.split('\n')) {
    assert.doesNotMatch(line.replaceAll('\t', ' ').replaceAll('\r', ''), control, JSON.stringify(line));
    assert.doesNotMatch(line, /^(remote: )?forged/);
  }
}

const namesAttack: HostAttack = {
  id: '36',
  title: 'Names with line breaks, terminal escapes and bytes that are no text',
  why: '',
  attempts: {
    async 'files API'() {
      await agent(
        String.raw`rm -rf * .[!.]*; printf a > "$(printf 'x\nforged')"; printf b > "$(printf '\033[2J\033]0;owned\007')"; printf c > "$(printf '\377\376')"`,
      );
      const listed = await ask('GET', '/');
      assertPlain(listed.text);
      const { files } = listed.json as { files: { href: string }[] };
      const contents = await Promise.all(files.map(({ href }) => fetched(href)));
      assert.deepEqual(contents.map(({ text }) => text).sort(), ['a', 'b', 'c']);
      for (const { headers } of contents)
        for (const [, value] of headers) assert.doesNotMatch(value, control);
      assertPlain(JSON.stringify(edge.logLines));
    },
    async deploys() {
      const names = { 'x\nforged': 'a', [ESCAPES]: 'b' };
      const good = await deploy(await git.workTree(names));
      assert.equal(good.pushed.code, 0, good.pushed.stderr);
      // What it was told for, with what was left of its name.
      assert.match(good.refusal ?? '', /owned.*control characters/);
      const manifest = JSON.stringify({ instructions: `${ESCAPES}\nforged` });
      const bad = await deploy(await git.workTree({ ...names, 'agent.json': manifest }));
      assert.equal(
        bad.items.find(({ commit }) => commit === bad.commit)?.status,
        'failed',
        bad.pushed.stderr,
      );
      // JSON spells out the old control characters only.
      const odd = await deploy(await git.workTree({ 'agent.json': JSON.stringify({ [`${ODD}odd`]: 1 }) }));
      assert.match(odd.pushed.stderr, /odd.* is not known/);
      for (const { pushed, items, refusal } of [good, bad, odd]) {
        assertPlain(pushed.stderr);
        assertPlain(refusal ?? '');
        for (const { error } of items) assert.doesNotMatch(error ?? '', control);
      }
    },
    async snapshots() {
      await agent(
        String.raw`rm -rf * .[!.]*; printf a > "$(printf 'x\nforged')"; printf b > "$(printf '\033[2J\377')"`,
      );
      const before = readdirSync(workspace, { encoding: 'buffer' }).map(String).sort();
      const id = await snapshot();
      await agent('rm -rf *');
      await restore(id);
      assert.deepEqual(readdirSync(workspace, { encoding: 'buffer' }).map(String).sort(), before);
      assertPlain((await edge.call('GET', of('/snapshots'))).text);
    },
    async attachments() {
      await agent('rm -rf * .[!.]*');
      const lines = await save('names', `x\nforged ${ESCAPES}.txt`);
      assert.equal(lines.length, 1);
      assertPlain(lines[0]!);
      const [folder] = readdirSync(join(workspace, 'attachments'));
      for (const name of readdirSync(join(workspace, 'attachments', folder!)))
        assert.doesNotMatch(name, control);
    },
  },
};

const FILES = 600;
const LINKS = 100;
const LARGE_BYTES = 1024 * 1024;

const manyAttack: HostAttack = {
  id: '37',
  title: 'Very many small files and names of the same file, for whoever walks or counts them',
  why: '',
  attempts: {
    async 'files API'() {
      await agent(manyFiles);
      const page = await ask('GET', '/many/?limit=100');
      const { files, nextCursor } = page.json as { files: unknown[]; nextCursor: string | null };
      assert.deepEqual([files.length, nextCursor === null], [100, false]);
      const archive = await ask('GET', '/same/?archive=tar');
      assert.ok(archive.text.length < 2 * LARGE_BYTES, `${archive.text.length} bytes`);
      // What counts against the limit: a file with many names once, and by a program beside the service.
      const { bytes, entries } = await fx.driver.volumeUse(volumeDir);
      assert.ok(bytes < 3 * LARGE_BYTES + FILES * 4096, `${bytes} bytes`);
      assert.ok(entries >= FILES, `${entries} entries`);
    },
    async deploys() {
      // Ten levels of ten times the same tree: ten thousand million paths in a few hundred bytes.
      const tree = await git.workTree({ x: 'x' });
      let id = raw(tree, ['rev-parse', 'HEAD^{tree}']);
      for (let level = 0; level < 10; level += 1) {
        const lines = Array.from({ length: 10 }, (_, index) => `040000 tree ${id}\td${index}\n`);
        id = raw(tree, ['mktree'], lines.join(''));
      }
      raw(tree, ['update-ref', 'refs/heads/main', raw(tree, ['commit-tree', '-m', 'bomb', id])]);
      const { archive, commit, agentId } = await inTime('it is refused', deploy(tree));
      assert.equal(archive, null);
      const checked = git.opened.checkTree(agentId, commit);
      await assert.rejects(inTime('it is counted', checked), /more than 50 files/);
    },
    async snapshots() {
      await agent(manyFiles);
      const made = await inTime('a snapshot is made', edge.call('POST', of('/snapshots'), { body: {} }));
      const { id, sizeBytes } = (made.json as { snapshot: { id: string; sizeBytes: number } }).snapshot;
      assert.ok(sizeBytes < 3 * LARGE_BYTES + FILES * 1024, `${sizeBytes} bytes`);
      await agent('rm -rf many same');
      await restore(id);
      assert.equal(lstatSync(join(workspace, 'same/1')).nlink, LINKS + 1);
    },
    async attachments() {
      await agent('rm -rf * .[!.]*');
      const to = { channelId: 'c', orgId: edge.agent.orgId, agentId: edge.agent.id };
      const files = Array.from({ length: 1_000 }, (_, index): Attachment => {
        const content = { at: 'inline' as const, bytes: Buffer.from('x') };
        return { name: `${index}.txt`, mediaType: 'text/plain', sizeBytes: 1, content };
      });
      const lines = await attachments.save(to, 'many', files);
      assert.equal(lines.length, limits.attachmentsPerMessage + 1);
      assert.match(lines.at(-1)!, /more, which were left out/);
      const [folder] = readdirSync(join(workspace, 'attachments'));
      assert.equal(readdirSync(join(workspace, 'attachments', folder!)).length, limits.attachmentsPerMessage);
    },
  },
};

const manyFiles = `rm -rf * .[!.]*; mkdir many same; cd many; seq ${FILES} | xargs touch; cd ../same
  head -c ${LARGE_BYTES} /dev/urandom > 0; perl -e 'link "0", $_ or die $! for 1 .. ${LINKS}'`;

const attacks = [linksAttack, pipesAttack, gitAttack, archivesAttack, namesAttack, manyAttack];
const table: AttackTable<Place> = {
  name: 'the tests of files that agents made',
  columns: places,
  rows: attacks,
  lastColumn: 'where it is not tried: why',
};

const verdicts: Record<Place, Record<string, string>> = {
  ...{ 'files API': {}, deploys: {}, snapshots: {}, attachments: {} },
};

for (const { id, title, attempts } of attacks) {
  for (const place of places) {
    const attempt = attempts[place];
    if (!attempt) {
      verdicts[place][id] = '–';
      continue;
    }
    test(`${place}, attack ${id}: ${title}`, async (t) => {
      if (missing) return t.skip(missing);
      await attempt();
      verdicts[place][id] = 'blocked';
    });
  }
}

test('the docs say of every attack by files of an agent how it ended at each place', (t) => {
  if (missing) return t.skip(missing);
  for (const place of places) {
    const found = attacks.map(({ id }): [string, string] => [id, verdicts[place][id] ?? 'not run']);
    checkCells(table, place, Object.fromEntries(found));
  }
});
