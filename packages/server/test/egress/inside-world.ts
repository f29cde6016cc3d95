import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chmodSync, copyFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { newId } from '../../src/domain/ids.ts';
import { collect, fixture, MIB, type Fixture } from '../sandbox/fixture.ts';
import { preparedHarness } from '../support/local-harness.ts';
import {
  casesOf,
  clientScript,
  readSeen,
  refusalsOf,
  type Client,
  type HostPlaces,
  type Mode,
  type Seen,
} from './clients.ts';
import { egressWorld, type World } from './fixture.ts';

/** `run` starts a sandbox of its own, whose refusals it gives as `host:port reason`; several may run at once. */
export async function inside(
  t: TestContext,
  mode: Mode,
  more: string[] = [],
  sandboxes: Fixture = fixture(),
) {
  t.after(() => sandboxes.close());
  const { usable, problems, transparentEgress } = await sandboxes.driver.capabilities();
  if (!usable) return void t.skip(`no sandbox here: ${problems.join(' ')}`);
  if (mode === 'transparent' && !transparentEgress) {
    return void t.skip('transparent egress is not possible here');
  }
  const { hostPath, nodeDir } = await preparedHarness();
  const world = await egressWorld(t, {
    policy: {
      allow: ['good.test', 'private.test', 'rebinding.test', 'redirect.test', ...more],
      transparent: mode === 'transparent',
    },
  });
  world.names.set('private.test', ['10.0.0.7']);
  world.names.set('rebinding.test', ['93.184.216.1', '169.254.169.254']);
  world.names.set('elsewhere.test', ['93.184.216.2']);
  makeRepository(world);
  // As the launcher does it: the way out is opened, and programs get its variables.
  const launcher = `
    import { spawn } from 'node:child_process';
    import { openEgress } from '/opt/berth/harness/egress.mjs';
    const way = await openEgress('/run/berth/egress.sock', process.env);
    const env = { ...process.env, ...(process.env.NO_VARIABLES ? {} : way) };
    const child = spawn('/bin/bash', ['-c', process.env.PROBES], { env, stdio: 'inherit' });
    child.on('exit', (code) => process.exit(code ?? 1));`;
  const ca = '/run/berth/test.crt';
  let slots = 0;
  const run = async (script: string, env: Record<string, string> = {}) => {
    const agentId = newId();
    const slot = (slots += 1);
    const spec = sandboxes.spec([], { slot, transparentEgress: mode === 'transparent' });
    const owner = { ...world.owner, agentId, sandboxId: spec.id };
    const opened = await world.proxy.open(owner, spec.runDir);
    const certificate = join(spec.runDir, 'test.crt');
    copyFileSync(world.certificate, certificate);
    chmodSync(certificate, 0o644);
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
          ...opened.env,
        },
        ...{ CURL_CA_BUNDLE: ca, SSL_CERT_FILE: ca, NODE_EXTRA_CA_CERTS: ca, GIT_SSL_CAINFO: ca },
        ...{ npm_config_cafile: ca, GIT_TERMINAL_PROMPT: '0', npm_config_fetch_retries: '0' },
        // In transparent mode the programs know of no proxy.
        ...(mode === 'transparent' ? { NO_VARIABLES: '1' } : {}),
        ...env,
      },
      limits: { ...spec.limits, memoryBytes: 1024 * MIB, pids: 256, openFiles: 1024, cpus: 2 },
    });
    const { stdout, stderr } = await collect(sandbox, 120_000);
    const seen = readSeen(stdout);
    assert.ok(seen.size > 0, `nothing was probed: ${stderr}`);
    const refusals = world.refusals
      .filter((refusal) => refusal.agentId === agentId)
      .map(({ host, port, reason }) => `${host}:${port} ${reason}`);
    return { seen, refusals };
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

const reached = /hello from|\tHEAD|secret of the host|answered:/;

/** What a program got, as the table of docs/egress.md says it. */
function outcomeOf({ text }: Seen): string {
  if (reached.test(text)) return 'reached';
  return /X-Berth-Egress-Error|\([a-z_]+\)|\b403\b/i.test(text) ? 'no, told so' : 'no';
}

/** Tries every case by each of the programs: what is listed is reached, and nothing else. Gives what each got, by program and case. */
export async function tryWaysOut(
  t: TestContext,
  { world, run }: NonNullable<Awaited<ReturnType<typeof inside>>>,
  mode: Mode,
  programs: Client[],
): Promise<Map<string, string>> {
  const outcomes = new Map<string, string>();
  const host = await hostServices(t);
  // Each in a sandbox of its own, so that the proxy tells whom it refused what.
  const tried = await Promise.all(
    programs.map(async (client) => {
      const { own, script, env } = clientScript(client, mode, casesOf(host.places));
      return { client, own, ...(await run(script, env)) };
    }),
  );
  for (const { client, own, seen, refusals } of tried) {
    const lines = [...seen].map(([name, { code, text }]) => `${name} ${code} ${text}`);
    const table = [client, ...lines].join('\n');
    for (const { name, isListed } of own) {
      const probe = seen.get(name);
      assert.ok(probe, `${name} was not tried\n${table}`);
      assert.equal(probe.code === 0, isListed === true, `${name}: code ${probe.code}\n${table}`);
      assert.equal(reached.test(probe.text), isListed === true, `${name}\n${table}`);
      outcomes.set(`${client} ${name}`, outcomeOf(probe));
    }
    // Plain HTTP is told why, in both modes.
    assert.match(seen.get('other-http')!.text, /403/, table);
    assert.deepEqual([...new Set(refusals)].sort(), refusalsOf(own, mode), table);
  }
  const { arrived, dialled, asked } = world;
  assert.deepEqual([...new Set(dialled)].sort(), ['93.184.216.1:443', '93.184.216.1:80']);
  assert.deepEqual(
    arrived.filter((line) => !/^\S+ good\.test /.test(line)),
    [],
  );
  const lookedUp = new Set(['good.test', 'private.test', 'rebinding.test']);
  assert.deepEqual(
    asked.filter((name) => !lookedUp.has(name)),
    [],
    'a name that is not listed was looked up',
  );
  assert.deepEqual(await host.came(), []);
  return outcomes;
}

/**
 * Services of the host that no sandbox may see, on its loopback and, where it has one, on another address: HTTP, and UDP
 * that answers. `came` says what has arrived there, and first that the UDP ones do count.
 */
async function hostServices(t: TestContext): Promise<{ places: HostPlaces; came(): Promise<string[]> }> {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const other = addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
  const came: string[] = [];
  const serve = async (address: string) => {
    const server = createServer((request, response) => {
      came.push(`${request.method} at ${address}`);
      response.end('secret of the host');
    });
    const udp = createSocket('udp4');
    t.after(() => {
      udp.close();
      server.close();
      server.closeAllConnections();
    });
    server.listen(0, address);
    udp.bind(0, address);
    await Promise.all([once(server, 'listening'), once(udp, 'listening')]);
    udp.on('message', (bytes, from) => {
      if (bytes.toString() !== 'mark') came.push(`UDP at ${address}: ${bytes.toString('latin1')}`);
      udp.send('hello from the host', from.port, from.address);
    });
    return { udp, http: `${address}:${(server.address() as AddressInfo).port}`, address };
  };
  const loopback = await serve('127.0.0.1');
  const outer = await serve(other ?? '127.0.0.1');
  const udpOf = ({ udp, address }: typeof loopback) => `${address}:${udp.address().port}`;
  return {
    places: {
      ...{ loopback: loopback.http, address: outer.http },
      ...{ udpLoopback: udpOf(loopback), udpAddress: udpOf(outer) },
    },
    async came() {
      for (const { udp, address } of [loopback, outer]) {
        // Whatever came before it has been counted when the mark is answered.
        const asking = createSocket('udp4');
        const answered = once(asking, 'message');
        asking.send('mark', udp.address().port, address);
        await answered.finally(() => asking.close());
      }
      return came;
    },
  };
}
