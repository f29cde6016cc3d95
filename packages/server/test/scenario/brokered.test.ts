import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { berthIn } from '../support/berth.ts';
import { makeOutsideCertificates } from '../support/broker-world.ts';
import { checkLog, logOf, workshop } from '../support/scenario.ts';
import { checkReport, nowhere, searcher } from '../support/secret-search.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

const isRoot = process.getuid?.() === 0;

/** Programs that have used the secret, keep what came back and their connection, and live. */
const client = `
fetch('https://' + process.argv[2] + '/', { headers: { authorization: 'Bearer ' + process.env.TOKEN } })
  .then(async (response) => {
    globalThis.kept = [response.headers, await response.text()];
    console.log('ready');
    setInterval(() => {}, 1000);
  });
`;
const pythonClient = `
import os, signal, sys, urllib.request
request = urllib.request.Request('https://' + sys.argv[1] + '/', headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})
response = urllib.request.urlopen(request)
kept = [response, dict(response.headers), response.read()]
print('ready', flush=True)
signal.pause()
`;
// Of these two the answer has no end.
const curlClient = `
curl -sS -N -i -H "Authorization: Bearer $TOKEN" "https://$1/endless" | sed -un '/^x-told: berth_ph_/s/.*/ready/p'
`;
const gitClient = `
GIT_TRACE_CURL=1 git ls-remote "https://user:$TOKEN@$1/endless" 2>&1 | sed -un '/Recv header: x-told: berth_ph_/s/.*/ready/p'
`;

/** A host of the world outside that tells back what it was told, and at /kept all that it ever was. */
async function startOutside(t: TestContext, names: string[]) {
  const { ca, key, cert } = makeOutsideCertificates(names);
  const folder = mkdtempSync(join(tmpdir(), 'berth-outside-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const caFile = join(folder, 'ca.pem');
  writeFileSync(caFile, ca);
  const tokens: string[] = [];
  const kept = new Map<string, string[]>();
  const server = createServer({ key, cert }, (message: IncomingMessage, response) => {
    const { host = '' } = message.headers;
    if (message.url === '/kept') return void response.end(`kept ${kept.get(host)?.join(' ')} kept\n`);
    const { authorization = '' } = message.headers;
    const isEndless = message.url!.startsWith('/endless');
    if (isEndless && authorization === '') {
      // git says who it is when it is asked.
      response.writeHead(401, { 'www-authenticate': 'Basic realm="endless"' });
      return void response.end();
    }
    const basic = /^Basic (.*)$/.exec(authorization)?.[1];
    const token = basic
      ? Buffer.from(basic, 'base64').toString().replace('user:', '')
      : authorization.replace('Bearer ', '');
    tokens.push(token);
    kept.set(host, [...(kept.get(host) ?? []), token]);
    response.setHeader('x-told', token);
    if (isEndless) response.write(`told ${token}\n`);
    else response.end(`told ${token}\n`);
  });
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { caFile, tokens, kept, port: (server.address() as AddressInfo).port };
}

test(
  'A brokered secret works from inside and is nowhere to be found, whatever its host kept and tells later; rotation holds at once, a killed service goes on, and other hosts get nothing.',
  { skip: isRoot ? false : 'only root can give a service another /etc/hosts' },
  async (t) => {
    const names = ['api.example.com', 'other.example.com'];
    const outside = await startOutside(t, names);
    const service = await startService({
      hosts: Object.fromEntries(names.map((name) => [name, '127.0.0.1'])),
      env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.1/32', SSL_CERT_FILE: outside.caFile },
    });
    t.after(() => service.end());
    const shop = await workshop(service);
    t.after(() => shop.close());
    const agent = await shop.agent({
      'AGENTS.md': 'You fetch.\n',
      'search.cjs': searcher,
      'client.cjs': client,
      'client.py': pythonClient,
      'curl.sh': curlClient,
      'git.sh': gitClient,
      'note.txt': 'marker-7351\n',
    });
    const berth = async (args: string[], stdin = '') => {
      const start = berthIn(shop.home, { BERTH_URL: service.url, BERTH_API_KEY: service.key });
      const ended = await start(args, { stdin }).ended;
      assert.equal(ended.code, 0, `berth ${args.join(' ')}\n${ended.stdout}\n${ended.stderr}`);
      return ended.stdout;
    };
    const [api, other] = names.map((name) => `${name}:${outside.port}`);
    const makeValue = () => `tok_${randomBytes(24).toString('hex')}`;
    const values = { first: makeValue(), second: makeValue(), foreign: makeValue() };
    await berth(['egress', 'allow', agent.id, api!, other!]);
    await berth(['secrets', 'set', agent.id, 'TOKEN', '--host', api!], values.first);
    await berth(['secrets', 'set', agent.id, 'FOREIGN', '--host', other!], values.foreign);
    assert.match(await berth(['secrets', 'list', agent.id]), /TOKEN +brokered +api\.example\.com:\d+/);

    let conversationId: string | null = null;
    const said: string[] = [];
    const run = async (line: string) => {
      const answered = await agent.say(`run: ${line}`, conversationId);
      conversationId = answered.conversationId as string;
      said.push(answered.message.content as string);
      return said.at(-1)!;
    };
    const curl = (host: string, name: string) =>
      `curl -sS -i -m 20 -H "Authorization: Bearer $${name}" https://${host}/`;

    /** The host tells every value that it was ever sent; none arrives, and of each there is a placeholder. */
    const isKept = async () => {
      const text = await run(`curl -sS -m 20 https://${api}/kept`);
      assert.match(text, new RegExp(`kept (berth_ph_[0-9a-f]{40} ){${outside.kept.get(api!)!.length}}kept`));
      for (const value of Object.values(values)) assert.equal(text.includes(value), false);
    };

    assert.match(
      await run(`touch /tmp/same-sandbox; ${curl(api!, 'TOKEN')}`),
      /x-told: berth_ph_[0-9a-f]{40}[^]*told berth_ph_/i,
    );
    assert.equal(outside.tokens.at(-1), values.first);

    // Another start of the sandbox has sent nothing yet.
    const restarted = await service.api('POST', `/sandbox/${agent.id}/restart`);
    assert.ok(restarted.status < 300, `restart: ${restarted.status}`);
    assert.doesNotMatch(await run('ls /tmp'), /same-sandbox/);
    await isKept();
    await run('touch /tmp/same-sandbox');

    const needle = `${values.first.slice(0, 20)} ${values.first.slice(20)}`;
    const already = outside.tokens.length;
    const clients = ['node client.cjs', 'python3 client.py', 'sh curl.sh', 'sh git.sh'].map(
      (one) => `'${one} ${api}'`,
    );
    const report = checkReport(await run(`node search.cjs ${needle} marker-7351 ${clients.join(' ')}`));
    assert.ok(report.memories > 40, `searched ${report.memories} areas of memory`);
    // Node calls itself by its main thread.
    for (const name of ['MainThread', 'python3', 'curl', 'git', 'git-remote-http'])
      assert.ok(report.searched.includes(name), `the memory of ${name} was not searched: ${report.searched}`);
    assert.deepEqual(outside.tokens.slice(already), Array(4).fill(values.first));

    await berth(['secrets', 'set', agent.id, 'TOKEN'], values.second);
    assert.match(await run(`ls /tmp/same-sandbox; ${curl(api!, 'TOKEN')}`), /same-sandbox[^]*told berth_ph_/);
    assert.equal(outside.tokens.at(-1), values.second);

    await isKept();

    await service.kill9();
    await service.restart();
    await isKept();
    assert.match(await run(`ls /tmp/same-sandbox; ${curl(api!, 'TOKEN')}`), /same-sandbox[^]*told berth_ph_/);
    assert.equal(outside.tokens.at(-1), values.second);

    assert.match(await run(curl(other!, 'TOKEN')), /HTTP\/1\.1 403[^]*placeholder_to_wrong_host/);
    assert.match(await run(curl(other!, 'FOREIGN')), /200 OK/);
    assert.equal(outside.tokens.at(-1), values.foreign);

    const stop = await service.api('DELETE', `/v1/agents/${agent.id}/secrets/TOKEN`);
    assert.equal(stop.status, 204);
    assert.doesNotMatch(await run('env'), /^TOKEN=/m);
    await isKept();
    let refused: { reason: string; host: string }[] = [];
    await until('the refusal is listed', async () => {
      refused = JSON.parse(await berth(['egress', 'refusals', agent.id, '--json']));
      return refused.length > 0;
    });
    assert.deepEqual(
      refused.map(({ reason, host }) => [reason, host]),
      [['placeholder_to_wrong_host', 'other.example.com']],
    );

    const events = await logOf(service, { conversationId: conversationId! });
    checkLog(events);
    const told = [JSON.stringify(events), JSON.stringify(refused), ...said];
    await service.stop();
    for (const value of Object.values(values)) nowhere(service, value, told);
  },
);
