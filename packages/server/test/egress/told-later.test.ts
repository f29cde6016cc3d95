import assert from 'node:assert/strict';
import type { Writable } from 'node:stream';
import { after, before, beforeEach, test } from 'node:test';
import { until } from '../support/until.ts';
import { brokerWorld, type BrokerWorld } from '../support/broker-world.ts';

const value = 'tok_first/0123456789+abcdef';
const late = 'tok_late_0123456789+abcdef';
const hosts = ['api.example.com'];
const secret = (key: string, text: string) => ({ key, hosts, value: Buffer.from(text) });
const secrets = [
  secret('TOKEN', value),
  { key: 'OTHER', hosts: ['other.example.com'], value: Buffer.from('other-value-0123') },
];

let world: BrokerWorld;
let initial: BrokerWorld['world'];
before(async () => {
  world = await brokerWorld(secrets);
  initial = { ...world.world };
});
after(() => world.close());
beforeEach(() => void Object.assign(world.world, initial));

/** What a host says to a request without any secret. */
async function told(text: string, host = 'api.example.com'): Promise<string> {
  world.world.answer = (_message, response) => {
    response.setHeader('x-last', text);
    response.end(text);
  };
  const { headers, body } = await world.fetch('/last', { host });
  assert.equal(headers['x-last'], body);
  return body;
}

test('a value that this start of the sandbox never sent is searched for in the answers of its hosts, in all its forms', async () => {
  const token = world.placeholder('TOKEN');
  const base64 = Buffer.from(`user:${value}`).toString('base64');
  assert.equal(await told(`last ${value}`), `last ${token}`);
  assert.equal(await told(`last ${encodeURIComponent(value)}`), `last ${token}`);
  assert.equal(await told(Buffer.from(value).toString('hex')), token);
  const answer = await told(`Basic ${base64}`);
  assert.match(answer, new RegExp(`^Basic .*${token}.*$`));
  assert.equal(answer.includes(base64.slice(8, -4)), false);
  // To another secret's host it never went.
  assert.equal(await told(value, 'other.example.com'), value);
});

test('what a secret was before it was rotated, moved to other hosts or deleted is searched for in the answers of its hosts then', async () => {
  const old = 'tok_old_0123456789+abcdef';
  world.world.secrets = [secret('TOKEN', 'tok_new_0123456789+abcdef'), secrets[1]!];
  world.world.earlier = [
    secret('TOKEN', old),
    { ...secret('TOKEN', 'tok_elsewhere_0123456789'), hosts: ['once.example.com'] },
    secret('GONE', 'tok_gone_0123456789+abcdef'),
  ];
  const token = world.placeholder('TOKEN');
  assert.equal(await told(`${old} tok_new_0123456789+abcdef`), `${token} ${token}`);
  assert.match(await told('tok_gone_0123456789+abcdef'), /^berth_ph_[0-9a-f]{40}$/);
  // A host that no secret is brokered for any more is still taken.
  assert.equal(world.interceptor.takes({ host: 'once.example.com', port: 443 }), true);
  assert.equal(await told('tok_elsewhere_0123456789', 'once.example.com'), token);
  world.world.secrets = [];
  assert.equal(await told(old), token);
  const sent = await world.fetch('/', { headers: { authorization: `Bearer ${token}` } });
  assert.equal(sent.status, 403);
});

test('an answer under way is searched for a value that is set and sent to its host meanwhile, whether a body or a WebSocket', async () => {
  const tellers: ((text: string) => void)[] = [];
  const texts = ['', ''];
  world.world.answer = (_message, response) => {
    response.write('begun ');
    tellers[0] = (text) => void response.end(`<${text}>`);
  };
  const body = world.tls();
  body.on('data', (chunk: Buffer) => (texts[0] += chunk.toString()));
  body.write('GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n');
  world.server.once('upgrade', (_message, socket) => {
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbegun ',
    );
    tellers[1] = (text) => void socket.end(`<${text}>`);
  });
  const webSocket = world.tls();
  webSocket.on('data', (chunk: Buffer) => (texts[1] += chunk.toString()));
  const upgrade = 'Connection: Upgrade\r\nUpgrade: WebSocket';
  webSocket.write(`GET /ws HTTP/1.1\r\nHost: api.example.com\r\n${upgrade}\r\n\r\n`);
  await until('both have begun', () => texts.every((text) => text.includes('begun ')));

  const token = world.placeholder('TOKEN');
  world.world.secrets = [secret('TOKEN', late)];
  const [tellBody, tellWebSocket] = tellers;
  world.world.answer = (_message, response) => void response.end();
  await world.fetch('/', { headers: { authorization: `Bearer ${token}` } });
  assert.equal(world.seen.at(-1)!.headers.authorization, `Bearer ${late}`);
  tellBody!(late);
  tellWebSocket!(late);
  await until('both have told', () => texts.every((text) => text.includes('>')));
  assert.ok(texts[0]!.includes(`<${token}>`), texts[0]);
  assert.ok(texts[1]!.endsWith(`<${token.slice(0, late.length)}>`), texts[1]);
  body.destroy();
  webSocket.destroy();
});

/** The three ways in which what was asked for may be answered late. */
const ways = [
  { way: 'the head of an answer', upgrade: '', answer: `HTTP/1.1 200 OK\r\nX-Last: ${late}\r\n`, body: '' },
  { way: 'the body of an answer', upgrade: '', answer: 'HTTP/1.1 200 OK\r\n', body: late },
  {
    way: 'a WebSocket',
    upgrade: 'Connection: Upgrade\r\nUpgrade: WebSocket\r\n',
    answer: 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n',
    body: late,
  },
];
for (const { way, upgrade, answer, body } of ways) {
  for (const first of [[], [secret('TOKEN', value)]]) {
    const holder = first.length === 0 ? 'nothing' : 'another value';
    test(`a value that is set and sent to its host after ${way} was asked for is searched for there, when the host had ${holder} before`, async () => {
      const token = world.placeholder('TOKEN');
      const held = world.session.searchCount;
      world.world.secrets = first;
      let tell: (() => void) | undefined;
      const teller = (socket: Writable) => {
        tell = () => void socket.end(`${answer}${upgrade ? '' : 'Connection: close\r\n'}\r\n<${body}>`);
      };
      if (upgrade) world.server.once('upgrade', (_message, socket) => teller(socket));
      else world.world.answer = (message) => teller(message.socket);
      const asked = world.tls();
      let text = '';
      asked.on('data', (chunk: Buffer) => (text += chunk.toString()));
      asked.write(`GET /poll HTTP/1.1\r\nHost: api.example.com\r\n${upgrade}\r\n`);
      await until('it is asked for', () => tell !== undefined);

      world.world.secrets = [secret('TOKEN', late)];
      world.world.answer = (_message, response) => void response.end();
      await world.fetch('/', { headers: { authorization: `Bearer ${token}` } });
      assert.equal(world.seen.at(-1)!.headers.authorization, `Bearer ${late}`);
      tell!();
      await until('it is answered', () => text.includes('>'));
      assert.equal(text.includes(late), false, text);
      assert.ok(text.includes(token.slice(0, late.length)), text);
      asked.destroy();
      await until('nothing of it is kept', () => world.session.searchCount === held);
    });
  }
}

test('nothing is kept of requests whose connection ends before they are answered', async () => {
  const held = world.session.searchCount;
  world.world.answer = () => undefined;
  const connections = [world.tls(), world.tls(), world.tls()];
  for (const asked of connections) asked.write('GET /poll HTTP/1.1\r\nHost: api.example.com\r\n\r\n');
  await until('they are asked for', () => world.session.searchCount === held + 3);
  for (const asked of connections) asked.destroy();
  await until('nothing of them is kept', () => world.session.searchCount === held);
});

test('an answer that could not be searched is not asked for, whether or not a value was sent', async () => {
  const packed = { 'accept-encoding': 'br', range: 'bytes=0-3', 'if-range': '"x"' };
  await world.fetch('/', { headers: packed });
  const { headers } = world.seen.at(-1)!;
  assert.deepEqual(
    [headers['accept-encoding'], headers.range, headers['if-range']],
    ['identity', undefined, undefined],
  );
});

test('a value that the agent got after its sandbox was started is searched for as well, and a placeholder stands instead', async () => {
  world.world.secrets = [...secrets, secret('LATER', 'tok_later_0123456789')];
  assert.match(await told('<tok_later_0123456789>'), /^<berth_ph_[0-9a-f]{40}>$/);
});
