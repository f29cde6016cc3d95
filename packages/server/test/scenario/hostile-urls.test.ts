import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hostileHosts, hostileNames, urlsFor } from '../support/hostile-urls.ts';
import { workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { trap } from '../support/trap.ts';
import { until } from '../support/until.ts';
import { mailbox, mails, mcpClient, openHost, pushesTo } from '../support/url-places.ts';

test('a hostile URL is refused by the running service before it connects, in outbound webhooks, gitUrl, MCP, answers, push notifications and attachments alike', async (t) => {
  // Another hosts file takes root; the names are tried against a resolver of the tests elsewhere.
  const isRoot = process.getuid?.() === 0;
  const names = isRoot ? Object.entries(hostileNames).filter(([, answers]) => answers[0]!.length === 1) : [];
  const service = await startService({
    env: { BERTH_ALLOW_PRIVATE_NETWORKS: `${openHost}/32`, BERTH_RATE_LIMIT: '100000/60' },
    ...(isRoot && { hosts: Object.fromEntries(names.map(([name, answers]) => [name, answers[0]![0]!])) }),
  });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());
  const { api } = service;
  const { port, caught } = await trap(t, () => service.pid);
  const known = new Set(names.map(([name]) => name));
  const isName = (host: string) => /^[^[%]*[a-z]{2,}\.?$/i.test(host);
  const hosts = hostileHosts.filter(
    (host) => !isName(host) || known.has(host.toLowerCase().replace(/\.$/, '')),
  );
  const secure = urlsFor('https', port, hosts);
  const urls = [...urlsFor('http', port, hosts), ...secure];
  const open = `http://${openHost}:${port}`;
  /** That it does dial where it may, known by what it says first: the path, or the beginning of TLS. */
  const dials = async (what: string, head: string, ask: () => Promise<unknown>) => {
    const before = caught.length;
    await ask();
    await until(`${what} were dialled where that is allowed`, () =>
      caught.slice(before).some((one) => one.head.includes(head)),
    );
  };
  const tls = '\x16\x03';

  const endpoint = (url: string) => api('POST', '/v1/webhook-endpoints', { url, events: ['run.completed'] });
  const kept = await endpoint(`http://${openHost}:1/`);
  assert.equal(kept.status, 201, kept.text);
  const change = (url: string) => api('PATCH', `/v1/webhook-endpoints/${kept.body.endpoint.id}`, { url });
  const agent = (gitUrl: string) => api('POST', '/v1/agents', { name: 'Fetched', gitUrl });
  for (const [place, ask] of Object.entries({ endpoint, change, agent })) {
    // A repository is fetched over https alone.
    for (const url of place === 'endpoint' ? urls : secure) {
      const reply = await ask(url);
      assert.deepEqual(
        [reply.status, reply.body.code],
        [400, 'invalid_request'],
        `${place} ${url}: ${reply.text}`,
      );
    }
  }
  assert.equal((await api('DELETE', `/v1/webhook-endpoints/${kept.body.endpoint.id}`)).status, 204);

  const plain = hosts.filter((host) => /^[\x21-\x7e]+$/.test(host)).map((host) => `${host}:${port}`);
  const speaker = await shop.agent({
    'AGENTS.md': 'You ask.\n',
    'mcp.mjs': mcpClient,
    'hosts.json': JSON.stringify({ hosts: plain }),
  });
  const policy = await api('PUT', `/v1/agents/${speaker.id}/egress`, {
    mode: 'open',
    // Whoever lists them: what is not public is reached by nobody, but where the operator has opened it.
    allow: [openHost, '127.0.0.1', '[::1]', '169.254.169.254'].map((host) => `${host}:${port}`),
  });
  assert.equal(policy.status, 200, policy.text);
  const ran = async (line: string) => (await speaker.say(`run: ${line}`)).message.content as string;
  assert.match(await ran('node mcp.mjs'), new RegExp(`asked ${2 * plain.length}, not refused: \\[\\]`));

  const replying = (replyUrl: string) =>
    api('POST', `/v1/agents/${speaker.id}/channels`, { kind: 'generic', settings: { replyUrl } });
  for (const url of urls) {
    const { status, body } = await replying(url);
    assert.deepEqual([status, body.code], [400, 'invalid_request'], `replyUrl ${url}`);
    assert.equal(body.details[0].path, 'settings.replyUrl');
  }

  const push = pushesTo(service, speaker.id);
  for (const url of urls) assert.equal((await push(url)).error?.code, -32602, `push ${url}`);

  const files = secure.filter((url) => url.startsWith('https://'));
  const parts = Array.from({ length: Math.ceil(files.length / 20) }, (_, at) =>
    files.slice(at * 20, at * 20 + 20),
  );
  const resend = await mails((id) => parts[Number(id)] ?? [`https://${openHost}:${port}/file`]);
  t.after(() => resend.close());
  const mail = await mailbox(service, speaker.id, resend.url);
  for (const [id, part] of parts.entries()) {
    const told = await mail(String(id));
    assert.equal(told.match(/not there, its address may not be called/g)?.length, part.length, told);
  }

  assert.deepEqual(caught, []);
  await dials('attachments', tls, () => mail('open'));
  await dials('MCP servers', 'POST /mcp', () => ran(`node mcp.mjs ${openHost}:${port}`));
  await dials('answers', 'POST /answer', async () => {
    const { status, body, text } = await replying(`${open}/answer`);
    assert.equal(status, 201, text);
    const tried = await api('POST', `/v1/channels/${body.channel.id}/test`, {
      text: 'say: hi',
      answer: true,
    });
    assert.equal(tried.status, 200, tried.text);
  });
  await dials('repositories', tls, () => agent(`https://${openHost}:${port}/repo.git`));
  await dials('push notifications', 'POST /push', () => push(`${open}/push`));
  await dials('outbound webhooks', 'POST /hook', async () => {
    assert.equal((await endpoint(`${open}/hook`)).status, 201);
    await ran('true');
  });
});
