import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gitWorld, type GitWorld } from '../support/git-world.ts';

let world: GitWorld;
let key: string;
const sockets: Socket[] = [];
before(async () => {
  world = await gitWorld({ limits: { stillTimeoutMs: 3_000 } });
  key = await world.key('edit');
});
after(async () => {
  for (const socket of sockets) socket.destroy();
  await world.close();
});

/** Sends the head of a clone, and what is given of its body. Resolves when the service has begun with it. */
async function ask(port: number, agentId: string, body: string, length = 1000): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  sockets.push(socket);
  socket.on('error', () => undefined);
  socket.write(
    `POST /git/${agentId}.git/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n` +
      `Content-Type: application/x-git-upload-pack-request\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`,
  );
  const [begun] = (await once(socket, 'data')) as [Buffer];
  assert.match(begun.toString(), /100 Continue/);
  socket.write(body);
  return socket;
}

test('clones whose bodies do not come take no place, however many they are', async () => {
  const agents = [];
  for (let n = 0; n < 4; n += 1) agents.push(await world.newAgent());
  const other = await world.newAgent();
  for (let n = 0; n < 80; n += 1) await ask(world.port, agents[n % 4]!.id, '0014c');
  assert.equal((await world.git(['ls-remote', world.url(other.id)])).code, 0);
  const copy = await world.git(['clone', '-q', world.url(other.id), join(world.home, 'copy')]);
  assert.equal(copy.code, 0, copy.stderr);
  for (const socket of sockets) socket.destroy();
});

test('a clone whose client takes nothing of the answer is cut off, and its place is another’s', async () => {
  const agent = await world.newAgent();
  const tree = await world.workTree({ 'AGENTS.md': 'Be brief.\n' });
  // More than the buffers of the kernel hold for a reader that stands still.
  await writeFile(join(tree, 'large'), randomBytes(32 * 1024 * 1024));
  const head = await world.commit(tree, {});
  assert.equal((await world.git(['push', '-f', world.url(agent.id), 'main'], { cwd: tree })).code, 0);
  const want = `want ${head}\n`;
  const body = `${(want.length + 4).toString(16).padStart(4, '0')}${want}00000009done\n`;
  // All places of an agent.
  for (let n = 0; n < 4; n += 1) {
    const socket = await ask(world.port, agent.id, body, body.length);
    await once(socket, 'data');
    socket.pause();
  }
  const copy = await world.git(['clone', '-q', world.url(agent.id), join(world.home, 'whole')]);
  assert.equal(copy.code, 0, copy.stderr);
});

/** What a clone is answered whose body is this: the status, and the first line. */
async function posted(to: GitWorld, agentId: string, body: ReadableStream | Buffer) {
  const answer = await fetch(`http://127.0.0.1:${to.port}/git/${agentId}.git/git-upload-pack`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${await to.key('edit')}`,
      'Content-Type': 'application/x-git-upload-pack-request',
    },
    body: body as never,
    duplex: 'half',
  } as RequestInit);
  return [answer.status, (await answer.text()).split('\n')[0]];
}

test('a body that does not come in time is refused with what to do', async () => {
  const hurried = await gitWorld({ limits: { readBodyTimeoutMs: 100 } });
  try {
    const { id } = await hurried.newAgent();
    const late = new ReadableStream({ start: (to) => to.enqueue(Buffer.from('0014c')) });
    const isLate = 'The request did not come within 0.1 seconds; try again.';
    assert.deepEqual(await posted(hurried, id, late), [408, isLate]);
  } finally {
    await hurried.close();
  }
});

test('a body that is too large is refused with how large one may be, and the next request served', async () => {
  const small = await gitWorld({ limits: { readBodyBytes: 1024 * 1024 } });
  try {
    const { id } = await small.newAgent();
    const large = Buffer.from('0000'.repeat(300_000));
    assert.deepEqual(await posted(small, id, large), [413, 'The request is larger than 1 MiB.']);
    assert.equal((await small.git(['ls-remote', small.url(id)])).code, 0);
  } finally {
    await small.close();
  }
});

test('bodies that are kept until they are whole have a bound for an agent, and small ones come in beside it', async () => {
  const small = await gitWorld({ limits: { readBodiesBytes: 400 * 1024 } });
  try {
    const { id } = await small.newAgent();
    const flushes = (kib: number) => Buffer.from('0000'.repeat(kib * 256));
    const full = [503, 'Too many git requests at once; try again.'];
    assert.deepEqual(await posted(small, id, flushes(128)), full);
    assert.notEqual((await posted(small, id, flushes(16)))[0], 503);
  } finally {
    await small.close();
  }
});
