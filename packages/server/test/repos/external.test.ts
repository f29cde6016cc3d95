import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { RepoError } from '../../src/domain/ports/repos.ts';
import { openRepos, type OpenRepos } from '../../src/repos/open-repos.ts';
import type { RepoLimits } from '../../src/repos/repo-limits.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { clientGit } from '../support/git-world.ts';
import { httpsGit } from '../support/https-git.ts';
import { silentLog } from '../support/log.ts';

const remoteId = newId();
let home: string;
let theirs: OpenRepos;
let host: Awaited<ReturnType<typeof httpsGit>>;
let git: ReturnType<typeof clientGit>;
let tree: string;
let lookups: string[] = [];

const names: Record<string, string[]> = { 'git.test': ['127.0.0.1'], 'inside.test': ['10.1.2.3'] };

async function ours(options: { allow?: string[]; trusted?: boolean; limits?: Partial<RepoLimits> } = {}) {
  const root = await mkdtemp(join(home, 'ours-'));
  const guard = createUrlGuard(options.allow ?? ['127.0.0.0/8'], async (name) => {
    lookups.push(name);
    return names[name] ?? [];
  });
  const opened = await openRepos({
    root,
    guard,
    log: silentLog,
    extraCaFiles: options.trusted === false ? [] : [host.caFile],
    limits: options.limits ?? {},
  });
  return { root, ...opened };
}

const url = (name = 'git.test', id = remoteId): string => `https://${name}:${host.port}/${id}.git`;

/** Their repository, written to directly, as its owner does. */
async function commit(files: Record<string, string>, branch = 'main'): Promise<string> {
  for (const [path, text] of Object.entries(files)) await writeFile(join(tree, path), text);
  await git(['add', '-A'], { cwd: tree });
  await git(['commit', '-q', '-m', 'c', '--allow-empty'], { cwd: tree });
  const pushed = await git(['push', '-q', '-f', join(home, 'theirs', `${remoteId}.git`), `HEAD:${branch}`], {
    cwd: tree,
  });
  assert.equal(pushed.code, 0, pushed.stderr);
  return (await git(['rev-parse', 'HEAD'], { cwd: tree })).stdout.trim();
}

async function refused(work: Promise<unknown>, pattern: RegExp): Promise<void> {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(error instanceof RepoError, String(error));
    assert.match(error.message, pattern);
    assert.doesNotMatch(error.message, /127\.0\.0\.1|10\.1\.2\.3|\/tmp\/|s3cret/);
    return true;
  });
}

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'berth-fetch-'));
  git = clientGit(home);
  const guard = createUrlGuard([]);
  theirs = await openRepos({ root: join(home, 'theirs'), guard, log: silentLog });
  await theirs.repos.createHosted(remoteId, { 'AGENTS.md': 'theirs\n' });
  host = await httpsGit(
    home,
    theirs.wire(async () => undefined),
  );
  tree = join(home, 'tree');
  await git(['clone', '-q', join(home, 'theirs', `${remoteId}.git`), tree]);
});
after(async () => {
  await host.close();
  await rm(home, { recursive: true, force: true });
});

test('the default branch is fetched, again when it moved, and read without a checkout', async () => {
  const { repos, root } = await ours();
  const agentId = newId();
  const first = await commit({ 'AGENTS.md': 'one\n' });
  const request = { url: url(), ref: null, token: null };
  assert.deepEqual(await repos.fetch(agentId, request), { commit: first, ref: 'main' });
  assert.equal((await repos.readFile(agentId, first, 'AGENTS.md', 100))?.toString(), 'one\n');
  assert.equal(await repos.resolve(agentId, 'main'), first);
  host.state.requests = [];
  assert.deepEqual(await repos.fetch(agentId, request), { commit: first, ref: 'main' });
  // The list of refs was asked for, and no pack.
  assert.equal(host.state.requests.length, 2);
  const second = await commit({ 'AGENTS.md': 'two\n' });
  assert.deepEqual(await repos.fetch(agentId, request), { commit: second, ref: 'main' });
  // The history stays with its owner.
  const count = await git(['--git-dir', join(root, `${agentId}.git`), 'rev-list', '--count', second]);
  assert.ok(Number(count.stdout) <= 2, count.stdout);
});

test('a branch, a tag and a commit id are fetched by name; what does not exist is said to', async () => {
  const { repos } = await ours();
  const agentId = newId();
  const side = await commit({ 'side.txt': 's\n' }, 'side');
  await git(['tag', '-a', '-m', 't', 'v1'], { cwd: tree });
  await git(['push', '-q', join(home, 'theirs', `${remoteId}.git`), 'v1'], { cwd: tree });
  const request = { url: url(), token: null };
  assert.deepEqual(await repos.fetch(agentId, { ...request, ref: 'side' }), { commit: side, ref: 'side' });
  assert.deepEqual(await repos.fetch(newId(), { ...request, ref: 'v1' }), { commit: side, ref: 'v1' });
  assert.deepEqual(await repos.fetch(newId(), { ...request, ref: side }), { commit: side, ref: side });
  await refused(repos.fetch(agentId, { ...request, ref: 'nope' }), /no branch or tag "nope"/);
  await refused(repos.fetch(agentId, { ...request, ref: '1'.repeat(40) }), /no (such )?.*commit/);
  await refused(repos.fetch(agentId, { ...request, ref: '--upload-pack=x' }), /^ref:/);
  await refused(
    repos.fetch(agentId, { url: url('git.test', newId()), ref: null, token: null }),
    /no such repository/,
  );
});

test('the token goes to the server and nowhere else: not into an argument list, not to disk', async () => {
  const { repos, root } = await ours();
  const agentId = newId();
  const token = `s3cret-${randomBytes(8).toString('hex')}`;
  const basic = Buffer.from(`x-access-token:${token}`).toString('base64');
  const commandLines: string[] = [];
  host.state.intercept = async (request, response) => {
    for (const pid of await readdir('/proc')) {
      if (/^\d+$/.test(pid))
        commandLines.push(await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''));
    }
    if (request.headers.authorization === `Basic ${basic}`) return false;
    response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="theirs"' }).end();
    return true;
  };
  try {
    await refused(repos.fetch(agentId, { url: url(), ref: null, token: null }), /asks for credentials/);
    await refused(
      repos.fetch(agentId, { url: url(), ref: null, token: 's3cret-wrong' }),
      /refused the credentials/,
    );
    assert.equal((await repos.fetch(agentId, { url: url(), ref: null, token })).ref, 'main');
  } finally {
    host.state.intercept = () => false;
  }
  const all = commandLines.join('\n');
  assert.match(all, /git-remote-https|remote-https/);
  assert.ok(!all.includes(token) && !all.includes(basic));
  for (const name of await readdir(root, { recursive: true })) {
    const bytes = await readFile(join(root, name)).catch(() => Buffer.alloc(0));
    assert.ok(!bytes.includes(token) && !bytes.includes(basic), name);
  }
});

test('a redirect is refused, and its target never hears of it', async () => {
  const { repos } = await ours();
  host.state.requests = [];
  host.state.intercept = (request, response) => {
    if (!request.headers.host?.startsWith('git.test')) return false;
    response.writeHead(302, { Location: `https://127.0.0.1:${host.port}${request.url}` }).end();
    return true;
  };
  try {
    await refused(repos.fetch(newId(), { url: url(), ref: null, token: 's3cret' }), /redirect/);
    assert.ok(host.state.requests.every((line) => line.includes('git.test')));
  } finally {
    host.state.intercept = () => false;
  }
});

test('the old protocol, by which a server can send the client to other hosts, is refused', async () => {
  const { repos } = await ours();
  const id = '1'.repeat(40);
  host.state.requests = [];
  host.state.intercept = (request, response) => {
    if (request.url?.includes('alternates')) response.end(`https://other.test:${host.port}/x/objects\n`);
    else if (request.url?.includes('info/refs')) response.end(`${id}\trefs/heads/main\n`);
    else if (request.url?.endsWith('HEAD')) response.end('ref: refs/heads/main\n');
    else response.writeHead(404).end();
    return true;
  };
  try {
    await refused(repos.fetch(newId(), { url: url(), ref: null, token: null }), /./);
    assert.ok(
      host.state.requests.every((line) => !line.includes('other.test')),
      host.state.requests.join('\n'),
    );
  } finally {
    host.state.intercept = () => false;
  }
});

test('the name is resolved once and the connection pinned to the address that was checked', async () => {
  const { repos } = await ours();
  lookups = [];
  // No resolver of the machine knows git.test, so only the pinned address can have been dialled.
  const { commit: fetched } = await repos.fetch(newId(), { url: url(), ref: null, token: null });
  assert.match(fetched, /^[0-9a-f]{40}$/);
  assert.deepEqual(lookups, ['git.test']);
});

for (const bad of [
  'http://git.test/x.git',
  'file:///etc',
  '/etc',
  'ext::sh -c "touch /tmp/pwned"',
  'ssh://git@git.test/x',
  'git@git.test:x',
  'git://git.test/x',
  '--upload-pack=touch /tmp/pwned',
  '-c',
  'https://user:s3cret@git.test/x.git',
  'https://git.test/x.git?a=b',
  'https://git.test/x.git#a',
  'https://127.0.0.1/x.git',
  'https://2130706433/x.git',
  'https://[::ffff:127.0.0.1]/x.git',
  'https://169.254.169.254/latest',
  'https://inside.test/x.git',
]) {
  test(`${bad} is refused before anything is dialled`, async () => {
    const { repos, checkUrl } = await ours({ allow: [] });
    host.state.requests = [];
    await assert.rejects(repos.fetch(newId(), { url: bad, ref: null, token: null }), RepoError);
    await assert.rejects(checkUrl(bad), RepoError);
    assert.deepEqual(host.state.requests, []);
  });
}

test('a name that cannot be resolved now is taken, and refused when it is fetched', async () => {
  const { repos, checkUrl } = await ours();
  const later = 'https://unknown.test/x.git';
  await checkUrl(later);
  await refused(
    repos.fetch(newId(), { url: later, ref: null, token: null }),
    /"unknown\.test" cannot be found/,
  );
  await assert.rejects(checkUrl(`${later}?a=b`), RepoError);
});

test('loopback is refused unless the operator opens it', async () => {
  const { repos } = await ours({ allow: [] });
  host.state.requests = [];
  await refused(repos.fetch(newId(), { url: url(), ref: null, token: null }), /private or reserved/);
  assert.deepEqual(host.state.requests, []);
});

test('a certificate of an unknown authority is refused', async () => {
  const { repos } = await ours({ trusted: false });
  await refused(repos.fetch(newId(), { url: url(), ref: null, token: null }), /certificate/);
});

test('a repository above the size limit is refused and leaves no half pack in the way', async () => {
  const { repos, root } = await ours({ limits: { packBytes: 1024 * 1024 } });
  const agentId = newId();
  await writeFile(join(tree, 'big.bin'), randomBytes(3 * 1024 * 1024));
  await commit({}, 'big');
  await git(['reset', '-q', '--hard', 'HEAD~1'], { cwd: tree });
  await refused(repos.fetch(agentId, { url: url(), ref: 'big', token: null }), /larger than 1 MiB/);
  const packs = await readdir(join(root, `${agentId}.git`, 'objects', 'pack'));
  assert.deepEqual(packs, []);
  assert.equal((await repos.fetch(agentId, { url: url(), ref: 'main', token: null })).ref, 'main');
});

test('a fetched tree with a forbidden name is refused and not stored', async () => {
  const { repos } = await ours();
  const agentId = newId();
  const bare = join(home, 'theirs', `${remoteId}.git`);
  const { spawnSync } = await import('node:child_process');
  const run = (args: string[], input: Buffer | string): string => {
    const identity = {
      GIT_AUTHOR_NAME: 'A',
      GIT_AUTHOR_EMAIL: 'a@e.c',
      GIT_COMMITTER_NAME: 'A',
      GIT_COMMITTER_EMAIL: 'a@e.c',
    };
    const done = spawnSync('git', ['--git-dir', bare, ...args], {
      input,
      env: { PATH: process.env['PATH'], ...identity },
    });
    assert.equal(done.status, 0, done.stderr.toString());
    return done.stdout.toString().trim();
  };
  const blob = run(['hash-object', '-w', '--stdin'], 'x');
  const entries = Buffer.concat([Buffer.from('100644 .git\0'), Buffer.from(blob, 'hex')]);
  const forged = run(['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], entries);
  const commitId = run(['commit-tree', '-m', 'forged', forged], '');
  run(['update-ref', 'refs/heads/forged', commitId], '');
  await refused(
    repos.fetch(agentId, { url: url(), ref: 'forged', token: null }),
    /object that is refused \(hasDotgit\)/,
  );
  assert.equal(await repos.resolve(agentId, commitId), null);
});

test('a server that never answers is given up after the time limit, and its git is gone', async () => {
  const { repos } = await ours({ limits: { fetchTimeoutMs: 1500 } });
  const agentId = newId();
  host.state.intercept = () => new Promise<boolean>(() => undefined);
  try {
    await refused(repos.fetch(agentId, { url: url(), ref: null, token: null }), /took longer than/);
  } finally {
    host.state.intercept = () => false;
  }
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
    assert.ok(!environment.includes(agentId), pid);
  }
});

test('locks that a killed git left behind do not stop the next fetch', async () => {
  const { repos, root } = await ours();
  const agentId = newId();
  await repos.createEmpty(agentId);
  const old = new Date(Date.now() - 10 * 60_000);
  for (const name of ['shallow.lock', 'refs/heads/main.lock', 'packed-refs.lock']) {
    const path = join(root, `${agentId}.git`, name);
    await writeFile(path, '');
    await utimes(path, old, old);
  }
  assert.equal((await repos.fetch(agentId, { url: url(), ref: null, token: null })).ref, 'main');
  assert.match((await repos.resolve(agentId, 'main')) ?? '', /^[0-9a-f]{40}$/);
});

test('making a repository twice at the same moment and again later gives one repository; removing it twice is fine', async () => {
  const { repos, root } = await ours();
  const agentId = newId();
  const files = { 'AGENTS.md': 'start\n' };
  const made = await Promise.all([1, 2, 3].map(() => repos.createHosted(agentId, files)));
  made.push(await repos.createHosted(agentId, { 'AGENTS.md': 'other\n' }));
  assert.equal(new Set(made.map((one) => one.commit)).size, 1);
  assert.deepEqual(
    (await readdir(root)).filter((name) => name.startsWith('.')),
    [],
  );
  await repos.remove(agentId);
  await repos.remove(agentId);
  assert.equal(await repos.resolve(agentId, 'main'), null);
});
