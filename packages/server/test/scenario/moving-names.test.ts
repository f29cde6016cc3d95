import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { workshop } from '../support/scenario.ts';
import { openServiceDatabase } from '../support/scenario-world.ts';
import { startService } from '../support/service.ts';
import { trap } from '../support/trap.ts';
import { until } from '../support/until.ts';
import { inboundEvents, mailbox, mails, mcpClient, openHost, pushesTo } from '../support/url-places.ts';

const name = 'moves.example.com';
const closedHost = '127.0.0.8';

test(
  'a name that leads elsewhere now takes the running service nowhere, in outbound webhooks, answers, push notifications, gitUrl, MCP and attachments alike, nor does a redirect in the first three',
  { skip: process.getuid?.() !== 0 && 'another hosts file takes root' },
  async (t) => {
    const service = await startService({
      env: { BERTH_ALLOW_PRIVATE_NETWORKS: `${openHost}/32`, BERTH_RATE_LIMIT: '100000/60' },
      hosts: { [name]: openHost },
    });
    t.after(() => service.end());
    const shop = await workshop(service);
    t.after(() => shop.close());
    const db = openServiceDatabase(service);
    t.after(() => db.close());
    const { api } = service;
    let isRedirect = false;
    const { port, caught } = await trap(
      t,
      () => service.pid,
      () =>
        isRedirect
          ? `HTTP/1.1 302 Found\r\nlocation: http://${closedHost}:${port}/inside\r\ncontent-length: 0\r\n\r\n`
          : 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
    );
    const lead = (address: string) =>
      writeFileSync(join(dirname(service.dataDir), 'hosts'), `127.0.0.1 localhost\n${address} ${name}\n`);
    const base = `http://${name}:${port}`;
    const speaker = await shop.agent({ 'AGENTS.md': 'You ask.\n', 'mcp.mjs': mcpClient, 'hosts.json': '{}' });
    await api('PUT', `/v1/agents/${speaker.id}/egress`, { mode: 'open', allow: [`${name}:${port}`] });
    const made = await api('POST', '/v1/webhook-endpoints', {
      url: `${base}/hook`,
      events: ['run.completed'],
    });
    assert.equal(made.status, 201, made.text);
    const endpoint = `/v1/webhook-endpoints/${made.body.endpoint.id}`;
    const channel = await api('POST', `/v1/agents/${speaker.id}/channels`, {
      kind: 'generic',
      settings: { replyUrl: `${base}/answer` },
    });
    assert.equal(channel.status, 201, channel.text);
    const resend = await mails(() => [`https://${name}:${port}/file`]);
    t.after(() => resend.close());
    const mail = await mailbox(service, speaker.id, resend.url);

    /** What the service notes of the first attempt at a webhook. */
    const webhook = async () => {
      const asked = await api('POST', `${endpoint}/test`);
      assert.equal(asked.status, 200, asked.text);
      const { delivery } = await until('the webhook was tried', async () => {
        const { body } = await api('GET', `${endpoint}/deliveries/${asked.body.delivery.id}`);
        return body.delivery.attempts > 0 ? body : null;
      });
      if (delivery.state === 'delivered') return `delivered ${delivery.lastStatus}`;
      return ['failed', delivery.lastStatus, delivery.lastError].filter(Boolean).join(' ');
    };
    const ended = (id: string) =>
      until('the event has ended', async () =>
        (await inboundEvents(service, speaker.id)).find(
          (one) => one.id === id && !['queued', 'processing'].includes(one.state),
        ),
      );
    const answer = async () => {
      const tried = await api('POST', `/v1/channels/${channel.body.channel.id}/test`, {
        text: 'say: hi',
        answer: true,
      });
      assert.equal(tried.status, 200, tried.text);
      const { state, reason } = await ended(tried.body.events[0].id);
      return reason === null ? state : `${state} ${reason}`;
    };
    const send = pushesTo(service, speaker.id);
    const push = async (path: string) => {
      const url = `${base}/${path}`;
      const { error } = await send(url);
      if (error) return `refused ${error.code}`;
      return until('the notification was tried', async () => {
        const [row] =
          await db.sql`select attempts, last_error, ended_at from a2a_push_configs where url = ${url}`;
        if (!row) return null;
        return row['ended_at'] ? 'sent' : row['attempts'] > 0 && `failed ${row['last_error']}`;
      });
    };
    const git = async () => {
      const gitUrl = `https://${name}:${port}/repo.git`;
      const { status, body } = await api('POST', '/v1/agents', { name: 'Fetched', gitUrl });
      return `${status} ${body.code}`;
    };
    const mcp = async () =>
      /asked \d+, .*/.exec((await speaker.say(`run: node mcp.mjs ${name}:${port}`)).message.content)?.[0];
    const isClosed = /^failed .*is on a private or reserved network/;

    // Open: everything is dialled, so that a name that leads here later would be too.
    assert.deepEqual(
      [await webhook(), await answer(), await push('push')],
      ['delivered 200', 'done', 'sent'],
    );
    assert.match(await mail('open'), /not there, it could not be/);
    assert.equal(await git(), '201 undefined');
    assert.doesNotMatch((await mcp())!, /not refused: \[\]/);
    const heads = caught.map(({ head }) => head.slice(0, 10));
    for (const head of ['POST /hook', 'POST /answ', 'POST /push', 'POST /mcp '])
      assert.ok(heads.includes(head), `${head} was dialled`);
    const tls = (): number => caught.filter(({ head }) => head.startsWith('\x16\x03')).length;
    await until('the repository and the file were dialled', () => tls() >= 2);

    lead(closedHost);
    for (const told of [await webhook(), await answer()]) assert.match(told, isClosed);
    assert.equal(await push('moved'), 'refused -32602');
    assert.match(await mail('moved'), /not there, its address may/);
    assert.equal(await git(), '400 invalid_request');
    await until('the way out of sandboxes has read the names anew', async () =>
      (await mcp())?.endsWith('not refused: []'),
    );

    lead(openHost);
    isRedirect = true;
    assert.equal(await webhook(), 'failed 302 The receiver answered 302.');
    assert.equal(await answer(), 'failed The provider answered with status 302.');
    assert.equal(await push('redirected'), 'failed The receiver answered 302.');

    assert.deepEqual(
      caught.filter(({ address }) => address !== openHost),
      [],
    );
  },
);
