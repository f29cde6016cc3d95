import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
before(async () => {
  world = await gitWorld();
});
after(() => world.close());

const refs = (agentId: string, service = 'git-upload-pack'): string =>
  `http://127.0.0.1:${world.port}/git/${agentId}.git/info/refs?service=${service}`;

const bearer = (value: string): RequestInit => ({ headers: { Authorization: `Bearer ${value}` } });

test('without a key git is asked for one, and without one the answer is 401', async () => {
  const agent = await world.newAgent();
  const answer = await fetch(refs(agent.id));
  assert.equal(answer.status, 401);
  assert.equal(answer.headers.get('www-authenticate'), 'Basic realm="berth"');
  assert.match(answer.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
  assert.equal(world.failures.length, 0);
});

test('a wrong key is refused, counted as a failed attempt, and not shown again', async () => {
  const agent = await world.newAgent();
  const wrong = 'svc_live_wrong';
  const cloned = await world.git(['clone', world.url(agent.id, wrong), 'nowhere']);
  assert.notEqual(cloned.code, 0);
  const answer = await fetch(refs(agent.id), bearer(wrong));
  assert.equal(answer.status, 401);
  assert.doesNotMatch(await answer.text(), /svc_live/);
  assert.ok(world.failures.length >= 2);
});

test('a use key gets 403 with what is needed, for fetch and for push', async () => {
  const agent = await world.newAgent();
  const use = await world.key('use', agent);
  for (const service of ['git-upload-pack', 'git-receive-pack']) {
    const answer = await fetch(refs(agent.id, service), bearer(use));
    assert.equal(answer.status, 403);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/);
    assert.match(await answer.text(), /scope "edit"/);
  }
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const pushed = await world.git(['push', world.url(agent.id, use), 'main'], { cwd: tree });
  assert.notEqual(pushed.code, 0);
  assert.match(pushed.stderr, /remote: .*scope "edit"/);
});

test('an edit key bound to the agent is enough', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const pushed = await world.git(['push', world.url(agent.id, await world.key('edit', agent)), 'main'], {
    cwd: tree,
  });
  assert.equal(pushed.code, 0, pushed.stderr);
});

test('a foreign agent, a missing one, one of another key and a malformed id get the same bytes', async () => {
  const mine = await world.newAgent();
  const other = await world.newAgent();
  const foreign = await world.agents.create(world.foreign, { name: 'Theirs' });
  const bound = bearer(await world.key('edit', mine));
  const seen = new Set<string>();
  for (const service of ['git-upload-pack', 'git-receive-pack']) {
    for (const id of [foreign.id, newId(), other.id, 'not-an-id', '..%2f..%2fetc']) {
      const answer = await fetch(refs(id, service), bound);
      const headers = [...answer.headers].filter(([name]) => !/^(date|x-request-id|ratelimit)/.test(name));
      seen.add(JSON.stringify([answer.status, headers, await answer.text()]));
    }
  }
  assert.equal(seen.size, 1, [...seen].join('\n'));
  assert.match([...seen][0]!, /^\[404,/);
});

test('an agent with a repository of its own elsewhere takes no push and says where to push', async () => {
  const agent = await world.newAgent();
  await world.opened.repos.createEmpty(agent.id);
  await world.db
    .sql`update agents set external_git_url = 'https://git.example.com/a.git' where id = ${agent.id}`;
  const tree = await world.workTree({ 'AGENTS.md': 'x\n' });
  const pushed = await world.git(['push', world.url(agent.id), 'main'], { cwd: tree });
  assert.notEqual(pushed.code, 0);
  assert.match(pushed.stderr, /remote: This agent is deployed from https:\/\/git\.example\.com\/a\.git/);
  const cloned = await world.git(['ls-remote', world.url(agent.id)]);
  assert.equal(cloned.code, 0, cloned.stderr);
});

test('other methods, other paths and the old protocol are refused', async () => {
  const agent = await world.newAgent();
  const key = bearer(await world.key('edit'));
  const post = await fetch(refs(agent.id), { ...key, method: 'POST', body: '' });
  assert.equal(post.status, 405);
  assert.equal(post.headers.get('allow'), 'GET');
  const dumb = await fetch(`http://127.0.0.1:${world.port}/git/${agent.id}.git/info/refs`, key);
  assert.equal(dumb.status, 400);
  for (const path of ['HEAD', 'config', 'objects/info/packs', '../x']) {
    const answer = await fetch(`http://127.0.0.1:${world.port}/git/${agent.id}.git/${path}`, key);
    assert.equal(answer.status, 404, path);
  }
});
