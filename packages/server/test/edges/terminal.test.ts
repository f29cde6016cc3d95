import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import type { EdgeWorld } from '../support/edge-world.ts';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';
import { hostControl } from '../support/host-control.ts';

let world: EdgeWorld;
let address: string;
const open: WebSocket[] = [];
before(async () => {
  world = await edgeWorld();
  address = (await world.listen()).replace('http:', 'ws:');
  world.sandboxHost.setControl(hostControl(world.volumesDir));
});
after(async () => {
  for (const socket of open) socket.terminate();
  await world.close();
});

interface Told {
  type: string;
  terminalId: string;
  offset: number;
  lostBytes: number;
  error: string;
  exitCode: number | null;
}

interface Client {
  socket: WebSocket;
  told: Told[];
  text: () => string;
  bytes: () => number;
  closed: () => number | null;
  type(text: string): void;
}

const authorized = (key = world.keys.owner) => ({ authorization: `Bearer ${key}` });

async function connect(
  query = '',
  options: { headers?: Record<string, string>; protocols?: string[]; at?: string } = {},
): Promise<Client> {
  const socket = new WebSocket(
    `${options.at ?? `${address}/sandbox/${world.agent.id}/terminal`}${query}`,
    options.protocols ?? [],
    {
      headers: options.headers ?? authorized(),
    },
  );
  open.push(socket);
  const parts: Buffer[] = [];
  let bytes = 0;
  const told: Told[] = [];
  let code: number | null = null;
  socket.on('message', (data, isBinary) => {
    if (!isBinary) return void told.push(JSON.parse(String(data)) as Told);
    parts.push(data as Buffer);
    bytes += (data as Buffer).length;
  });
  socket.on('close', (given) => (code = given));
  await once(socket, 'open');
  await until('it is opened', () => told.length > 0);
  return {
    socket,
    told,
    text: () => Buffer.concat(parts).toString(),
    bytes: () => bytes,
    closed: () => code,
    type: (text) => socket.send(Buffer.from(text)),
  };
}

/** The status and body with which a connection is refused. */
async function refusal(
  path: string,
  options: { headers?: Record<string, string>; protocols?: string[] } = {},
  at = address,
) {
  const socket = new WebSocket(`${at}${path}`, options.protocols ?? [], {
    headers: options.headers ?? authorized(),
  });
  socket.on('error', () => {});
  const [, response] = (await once(socket, 'unexpected-response')) as [
    unknown,
    import('node:http').IncomingMessage,
  ];
  let text = '';
  for await (const part of response) text += String(part);
  return { status: response.statusCode, text, headers: response.headers };
}

test('what is typed reaches a shell on a terminal, its output comes back, and its exit closes the connection', async () => {
  const client = await connect();
  client.type('echo out-$((40+2)); tty\n');
  await until('it answers', () => /out-42\r\n\/dev\/pts\/\d+/.test(client.text()));
  client.type('exit 5\n');
  await until('it is closed', () => client.closed() !== null);
  assert.equal(client.closed(), 1000);
  assert.deepEqual([client.told.at(-1)!.type, client.told.at(-1)!.exitCode], ['exit', 5]);
});

test('a client that comes back has all that it missed, and neither more nor less', async () => {
  const first = await connect();
  first.type('echo be""fore\n');
  await until('it answers', () => first.text().includes('before'));
  const { terminalId } = first.told[0]!;
  const isThere = (name: string) => readdirSync(world.volumesDir).includes(name);
  const untilGone = 'touch waiting; until [ -e gone ]; do sleep 0.05; done; echo missed; touch written';
  writeFileSync(join(world.volumesDir, 'until-gone'), untilGone);
  first.type('sh until-gone\n');
  await until('it waits', () => isThere('waiting'));
  const seen = first.bytes();
  first.socket.terminate();
  writeFileSync(join(world.volumesDir, 'gone'), '');
  await until('it was written', () => isThere('written'));
  const second = await connect(`?terminalId=${terminalId}&after=${seen}`);
  await until('it is there', () => second.text().includes('missed'));
  assert.deepEqual(
    [second.told[0]!.terminalId, second.told[0]!.offset, second.told[0]!.lostBytes],
    [terminalId, seen, 0],
  );
  assert.ok(!second.text().includes('before'));
  second.type('echo after""wards\n');
  await until('it goes on', () => second.text().includes('afterwards'));
  const third = await connect(`?terminalId=${terminalId}`);
  await until('the second is let go', () => second.closed() !== null);
  assert.equal(second.closed(), 4001);
  await until('it has all from the begin', () => /before[^]*missed[^]*afterwards/.test(third.text()));
  third.type('exit\n');
  await until('it is closed', () => third.closed() === 1000);
});

test('more output than is kept is told as lost, and all of it comes to a client that reads late', async () => {
  const first = await connect();
  const { terminalId } = first.told[0]!;
  const bytes = 2_000_000;
  first.socket.pause();
  first.type(`touch begun; head -c ${bytes} /dev/zero | tr "\\0" x; echo d""one\n`);
  await until('it has begun', () => readdirSync(world.volumesDir).includes('begun'));
  first.socket.resume();
  // Joining so much text at every look would take more time than its way here.
  await until('all of it came', () => first.bytes() >= bytes && first.text().includes('done'));
  first.socket.terminate();
  const second = await connect(`?terminalId=${terminalId}&after=0`);
  const { offset, lostBytes } = second.told[0]!;
  assert.ok(offset > bytes - 300_000 && lostBytes === offset, JSON.stringify(second.told[0]));
  second.type('exit\n');
  await until('it is closed', () => second.closed() === 1000);
});

/** Also one that its new parent, which in a container may wait for nobody, leaves as it is. */
function hasEnded(pid: string): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.charAt(stat.lastIndexOf(')') + 2) === 'Z';
  } catch {
    return true;
  }
}

test('a terminal that nobody comes back to ends', async (t) => {
  const hasty = await edgeWorld({ terminalGraceMs: 100 });
  t.after(() => hasty.close());
  hasty.sandboxHost.setControl(hostControl(hasty.volumesDir));
  const at = (await hasty.listen()).replace('http:', 'ws:');
  const headers = authorized(hasty.keys.owner);
  const client = await connect('', { headers, at: `${at}/sandbox/${hasty.agent.id}/terminal` });
  const { terminalId } = client.told[0]!;
  client.type('echo pid-$$-pid\n');
  await until('it tells', () => /pid-\d+-pid/.test(client.text()));
  const pid = /pid-(\d+)-pid/.exec(client.text())![1]!;
  client.socket.terminate();
  await until('the shell has ended', () => hasEnded(pid));
  const reply = await refusal(
    `/sandbox/${hasty.agent.id}/terminal?terminalId=${terminalId}`,
    { headers },
    at,
  );
  assert.deepEqual([reply.status, JSON.parse(reply.text).code], [404, 'not_found']);
});

test('terminals whose shell has ended while nobody was there give way to one more, and open ones do not', async () => {
  const agent = await world.resources.agents.create(world.resources.owner, { name: 'Many' });
  const at = `${address}/sandbox/${agent.id}/terminal`;
  const path = `/sandbox/${agent.id}/terminal`;
  const clients = await Promise.all(Array.from({ length: 8 }, () => connect('', { at })));
  const refused = await refusal(path);
  assert.deepEqual([refused.status, JSON.parse(refused.text).code], [429, 'too_many_sandboxes']);
  // One shell ends while its client is away.
  const [away] = clients;
  away!.type(`until [ -e end-${agent.id} ]; do sleep 0.05; done; touch ended-${agent.id}; exit\n`);
  await until('it waits', () => away!.text().includes('until'));
  away!.socket.terminate();
  writeFileSync(join(world.volumesDir, `end-${agent.id}`), '');
  await until('it has ended', () => readdirSync(world.volumesDir).includes(`ended-${agent.id}`));
  const one = await until('one more is opened', () => connect('', { at }).catch(() => null));
  one.type('echo 4$((1+1))\n');
  await until('it answers', () => one.text().includes('42'));
  assert.equal((await refusal(path)).status, 429);
  assert.ok(clients.slice(1).every((client) => client.closed() === null));
});

test('control frames resize and signal, and what is none is told so', async () => {
  const client = await connect();
  client.type('touch busy; sleep 60\n');
  await until('it runs', () => readdirSync(world.volumesDir).includes('busy'));
  for (const text of [
    'no json',
    '{"type":"resize","columns":0,"rows":1}',
    '{"type":"signal","signal":"SIGSEGV"}',
    '[]',
  ])
    client.socket.send(text);
  await until('they are told', () => client.told.filter(({ type }) => type === 'error').length === 4);
  client.socket.send('{"type":"resize","columns":120,"rows":40}');
  client.socket.send('{"type":"signal","signal":"SIGKILL"}');
  await until('it is closed', () => client.closed() !== null);
  assert.equal(client.told.at(-1)!.type, 'exit');
});

test('frames that are too large, and too many at once, close the connection', async () => {
  const large = await connect();
  large.socket.send(Buffer.alloc(65 * 1024));
  await until('it is closed', () => large.closed() !== null);
  assert.equal(large.closed(), 1009);
  const many = await connect();
  // Again and again: a machine that reads one lot slowly might find it slow enough.
  await until('it is closed', () => {
    for (let count = 0; count < 2_000; count += 1) many.socket.send(Buffer.from(' '));
    return many.closed() !== null;
  });
  assert.equal(many.closed(), 1008);
});

test('a browser gives its key as a subprotocol, which is not chosen, and comes from the same origin only', async () => {
  const protocols = ['berth.terminal.v1', `berth.key.${world.keys.owner}`];
  const client = await connect('', { headers: { origin: address.replace('ws:', 'http:') }, protocols });
  assert.equal(client.socket.protocol, 'berth.terminal.v1');
  client.type('exit\n');
  await until('it is closed', () => client.closed() !== null);
  const path = `/sandbox/${world.agent.id}/terminal`;
  const foreign = await refusal(path, { headers: { origin: 'https://evil.example' }, protocols });
  assert.deepEqual([foreign.status, /Origin/.test(foreign.text)], [400, true]);
});

test('keys and input are checked as everywhere before there is a connection', async () => {
  const path = `/sandbox/${world.agent.id}/terminal`;
  const missing = await refusal(path, { headers: {} });
  assert.deepEqual([missing.status, missing.headers['www-authenticate']], [401, 'Bearer realm="berth"']);
  assert.equal((await refusal(path, { headers: authorized('svc_live_x') })).status, 401);
  assert.equal((await refusal(path, { headers: authorized(world.keys.use) })).status, 403);
  for (const target of [path, `${path}?columns=0`, `/sandbox/nonsense/terminal`]) {
    const hidden = await refusal(target, { headers: authorized(world.keys.foreign) });
    assert.deepEqual(
      [hidden.status, hidden.text],
      [404, '{"error":"Not found.","code":"not_found"}'],
      target,
    );
  }
  for (const query of ['columns=0', 'rows=x', 'terminalId=x', 'after=-1', 'nonsense=1', 'term=a%20b'])
    assert.equal((await refusal(`${path}?${query}`)).status, 400, query);
  const plain = await world.call('GET', path);
  assert.deepEqual([plain.status, (plain.json as { code: string }).code], [400, 'invalid_request']);
  const client = await connect();
  const { terminalId } = client.told[0]!;
  assert.equal(
    (await refusal(`${path}?terminalId=${terminalId}`, { headers: authorized(world.keys.edit) })).status,
    404,
  );
  client.socket.terminate();
});

test('a terminal ends when its key is revoked', async () => {
  const caller = await world.resources.caller('edit', 'org-bound');
  const client = await connect('', { headers: authorized(caller.value) });
  await world.resources.apiKeys.revoke(world.resources.owner, caller.keyId);
  await until('it is closed', () => client.closed() !== null);
  assert.equal(client.closed(), 4002);
});
