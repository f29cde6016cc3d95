import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkCells, wayOut } from '../sandbox/attack-table.ts';
import { brokerSandbox, gitBackend } from '../support/broker-sandbox.ts';

const value = 'tok_Zq8+/w9R=x71';
const secret = { key: 'TOKEN', hosts: ['api.example.com', 'git.example.com'], value: Buffer.from(value) };
const names = ['api.example.com', 'git.example.com', 'other.example.com'];
const basic = (user: string) => `Basic ${Buffer.from(`${user}:${value}`).toString('base64')}`;

/** What the sandbox has of the host's programs, and this test runs. */
const missing = [
  ...['curl', 'python3'].filter((name) => !existsSync(`/usr/bin/${name}`)),
  ...(spawnSync('/usr/bin/python3', ['-m', 'pip', '--version']).status === 0 ? [] : ['pip']),
];

for (const mode of ['proxy', 'transparent'] as const) {
  test(`curl, Node, Python and pip in a sandbox reach the host with the value that they do not have (${mode})`, async (t) => {
    if (missing.length > 0) return void t.skip(`not here: ${missing.join(', ')}`);
    const { driver, run, arrived, world, refusals } = await brokerSandbox(t, names, [secret], mode);
    if (mode === 'transparent' && !(await driver.capabilities()).transparentEgress) {
      return void t.skip('transparent egress is not possible here');
    }
    world.answer = (message, response) => {
      if (message.url?.startsWith('/simple/')) response.setHeader('content-type', 'text/html');
      response.end(
        message.url?.startsWith('/simple/')
          ? '<a href="/none">none</a>'
          : `told ${message.headers.authorization}`,
      );
    };
    const script = [
      'curl -sS -H "Authorization: Bearer $TOKEN" https://api.example.com/curl; echo',
      'curl -sS -u "user:$TOKEN" https://api.example.com/curl-basic; echo',
      `node -e 'fetch("https://api.example.com/node", { headers: { authorization: "Bearer " + process.env.TOKEN } }).then((r) => r.text()).then(console.log)'`,
      `/usr/bin/python3 -c '
import os, urllib.request
request = urllib.request.Request("https://api.example.com/python", headers={"Authorization": "Bearer " + os.environ["TOKEN"]})
print(urllib.request.urlopen(request).read().decode())'`,
      '/usr/bin/python3 -m pip download --no-input --disable-pip-version-check -q -i "https://user:$TOKEN@api.example.com/simple" thing 2>&1 | tail -1',
      'curl -sS -H "Authorization: Bearer $TOKEN" https://other.example.com/other; echo',
      'curl -sS -o /dev/null -w "%{http_code}\\n" -d "$TOKEN" http://other.example.com/',
      'env | grep -c berth_ph_',
    ].join('\n');
    const { stdout, stderr, env } = await run(script);
    const all = stdout + stderr;
    assert.deepEqual(
      arrived.map(({ url, authorization }) => [url, authorization]),
      [
        ['/curl', `Bearer ${value}`],
        ['/curl-basic', basic('user')],
        ['/node', `Bearer ${value}`],
        ['/python', `Bearer ${value}`],
        ['/simple/thing/', basic('user')],
        // To a host that it is not for, the placeholder is no more than a text.
        ['/other', `Bearer ${env['TOKEN']}`],
      ],
      all,
    );
    assert.equal(stdout.split(`told Bearer ${env['TOKEN']}`).length, 5, all);
    assert.equal(all.includes(value), false);
    assert.match(stdout, /^403$/m);
    assert.deepEqual(
      refusals.map(({ reason, host }) => [reason, host]),
      [['placeholder_to_wrong_host', 'other.example.com']],
    );
    checkCells(wayOut, `${mode} mode`, { 34: 'blocked' });
  });
}

test('git clones and pushes over https with a brokered token, as password and as a bearer', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'berth-outside-git-'));
  t.after(() => rmSync(root, { recursive: true }));
  const git = (...args: string[]) => execFileSync('git', args, { cwd: root, stdio: 'pipe' });
  git('init', '-q', '-b', 'main', 'work');
  // Enough to be sent in pieces.
  writeFileSync(join(root, 'work', 'file'), Buffer.alloc(300_000, 'text that git packs well\n'));
  const who = ['-c', 'user.name=A', '-c', 'user.email=a@example.com'];
  git('-C', 'work', 'add', '.');
  git('-C', 'work', ...who, 'commit', '-q', '-m', 'one');
  git('clone', '-q', '--bare', 'work', 'repo.git');
  git('-C', 'repo.git', 'config', 'http.receivepack', 'true');
  const { run, arrived, world } = await brokerSandbox(t, names, [secret]);
  const allowed = [basic('x-access-token'), `Bearer ${value}`];
  world.answer = (message, response) => {
    if (allowed.includes(message.headers.authorization ?? '')) return gitBackend(root, message, response);
    response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
  };
  const script = [
    'set -e; export GIT_CONFIG_NOSYSTEM=1; cd /workspace',
    'git clone -q "https://x-access-token:$TOKEN@git.example.com/repo.git" one',
    'git -c http.extraHeader="Authorization: Bearer $TOKEN" clone -q https://git.example.com/repo.git two',
    'cmp one/file two/file; cd two; echo changed >> file; git add .',
    'git -c user.name=B -c user.email=b@example.com commit -q -m "from inside"',
    'git push -q "https://x-access-token:$TOKEN@git.example.com/repo.git" main',
    'grep -r "$TOKEN" ../one/.git/config | wc -l',
  ].join('\n');
  const { stdout, stderr, exit } = await run(script);
  assert.equal(exit.code, 0, stdout + stderr);
  assert.equal(stdout.trim(), '1');
  assert.match(git('-C', 'repo.git', 'log', '--format=%s').toString(), /^from inside\n/);
  const used = new Set(arrived.map(({ authorization }) => authorization));
  assert.deepEqual([...used].sort(), ['', ...allowed].sort());
});

test('a placeholder to a host of nobody goes into its tunnel and is worthless; to plain HTTP it is refused', async (t) => {
  const { run, arrived, refusals, world } = await brokerSandbox(t, names, [secret]);
  world.answer = (message, response) => void response.end(`${message.headers.authorization}\n`);
  const { stdout, env, stderr } = await run(
    'curl -sS -H "Authorization: Bearer $TOKEN" https://other.example.com/; ' +
      'curl -sS -o /dev/null -w "%{http_code}\\n" -d "$TOKEN" http://other.example.com/',
  );
  assert.equal(stdout, `Bearer ${env['TOKEN']}\n403\n`, stderr);
  assert.deepEqual(arrived, [
    { host: 'other.example.com', url: '/', authorization: `Bearer ${env['TOKEN']}` },
  ]);
  assert.deepEqual(
    refusals.map(({ reason, host }) => [reason, host]),
    [['placeholder_to_wrong_host', 'other.example.com']],
  );
});

test('each start has other placeholders and another authority, and an agent without brokered secrets has none', async (t) => {
  const { run, world } = await brokerSandbox(t, names, [secret]);
  const show = 'cat /run/berth/ca.pem; ls -l /run/berth; touch /run/berth/ca.pem; true';
  const [one, two] = [await run(show), await run(show)];
  assert.match(one.stdout, /BEGIN CERTIFICATE[^]*ca-bundle\.pem/);
  assert.match(one.stderr, /Read-only file system|Permission denied/);
  assert.notEqual(one.env['TOKEN'], two.env['TOKEN']);
  assert.notEqual(one.stdout, two.stdout);
  world.secrets = [];
  const none = await run(show);
  assert.equal(none.env['NODE_EXTRA_CA_CERTS'], undefined);
  assert.doesNotMatch(none.stdout, /ca-bundle/);
});
