import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
before(async () => {
  world = await gitWorld();
});
after(() => world.close());

const services = ['git-upload-pack', 'git-receive-pack'] as const;

// A rejection that nobody waits for ends the service; here it fails the test in which it happens.
for (const service of services) {
  test(`a body that is no gzip, or is cut, ends its own request of ${service} and nothing else`, async () => {
    const agent = await world.newAgent();
    const authorization = `Bearer ${await world.key('edit')}`;
    const cut = gzipSync(Buffer.alloc(10_000, '0032want ')).subarray(0, 20);
    for (const body of [Buffer.from('not gzip'), cut, Buffer.alloc(0)]) {
      const answer = await fetch(`http://127.0.0.1:${world.port}/git/${agent.id}.git/${service}`, {
        method: 'POST',
        headers: {
          'Content-Type': `application/x-${service}-request`,
          'Content-Encoding': 'gzip',
          Authorization: authorization,
        },
        body,
      });
      assert.ok(answer.status < 500, String(answer.status));
      assert.doesNotMatch(await answer.text(), /service failed|Internal error/);
    }
    assert.equal((await world.git(['ls-remote', world.url(agent.id)])).code, 0);
  });
}

const malformed = ['garbage', 'zzzz', '0003', 'ffff', 'fff1', '-001', '+010', ' 010', '0x10'];

for (const service of services) {
  test(`a body of ${service} that is no packets is refused with what is wrong with it`, async () => {
    const agent = await world.newAgent();
    const post = await poster(agent.id, service);
    for (const text of [...malformed, '0009done', '000', '0032want 0000']) {
      const answer = await post(Buffer.from(text));
      assert.equal(answer.status, 400, `${text}: ${answer.text}`);
      assert.match(answer.text, /packet|list of refs/, text);
      assert.match(answer.type, /^text\/plain/);
    }
    assert.equal((await world.git(['ls-remote', world.url(agent.id)])).code, 0);
  });
}

test('a push whose list of refs holds something else is refused, and one of nothing is not', async () => {
  const agent = await world.newAgent();
  const post = await poster(agent.id, 'git-receive-pack');
  const zeros = '0'.repeat(40);
  for (const line of ['', 'hello', `${zeros} ${zeros}`, `shallow ${zeros.slice(1)}`]) {
    const length = (line.length + 4).toString(16).padStart(4, '0');
    const answer = await post(Buffer.from(`${length}${line}0000`));
    assert.equal(answer.status, 400, `${line}: ${answer.text}`);
    assert.match(answer.text, /<old id> <new id> <ref>/);
  }
  // With this git asks whether it may push before it sends much.
  assert.equal((await post(Buffer.from('0000'))).status, 200);
});

test('a packed push that lacks its last bytes is refused, and moves nothing', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'Be brief.\n' });
  const commit = (await world.git(['rev-parse', 'HEAD'], { cwd: tree })).stdout.trim();
  const before = await world.opened.repos.resolve(agent.id, 'main');
  const line = `${'0'.repeat(40)} ${commit} refs/heads/other\0 report-status`;
  const head = `${(line.length + 4).toString(16).padStart(4, '0')}${line}0000`;
  const pack = execFileSync('git', ['-C', tree, 'pack-objects', '--revs', '--stdout', '-q'], {
    input: 'HEAD\n',
  });
  const packed = gzipSync(Buffer.concat([Buffer.from(head), pack]));
  const post = await poster(agent.id, 'git-receive-pack', { 'Content-Encoding': 'gzip' });
  for (const missing of [1, 4, 8]) {
    const answer = await post(packed.subarray(0, -missing));
    assert.equal(answer.status, 400, answer.text);
    assert.match(answer.text, /gzip/);
  }
  const refs = await world.git(['ls-remote', world.url(agent.id)]);
  assert.doesNotMatch(refs.stdout, /other/);
  assert.equal(await world.opened.repos.resolve(agent.id, 'main'), before);
  const whole = await post(packed);
  assert.equal(whole.status, 200);
  assert.match(whole.text, /unpack ok/);
  assert.match((await world.git(['ls-remote', world.url(agent.id)])).stdout, /refs\/heads\/other/);
});

async function poster(agentId: string, service: string, more: Record<string, string> = {}) {
  const authorization = `Bearer ${await world.key('edit')}`;
  return async (body: Buffer) => {
    const answer = await fetch(`http://127.0.0.1:${world.port}/git/${agentId}.git/${service}`, {
      method: 'POST',
      headers: { 'Content-Type': `application/x-${service}-request`, Authorization: authorization, ...more },
      body,
    });
    return {
      status: answer.status,
      type: answer.headers.get('content-type') ?? '',
      text: await answer.text(),
    };
  };
}
