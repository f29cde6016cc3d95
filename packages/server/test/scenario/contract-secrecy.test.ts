import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { lstatSync, readFileSync, readdirSync, type Dirent } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { World } from '../support/scenario-world.ts';
import { endSharedWorld, sharedWorld } from '../support/scenario-world.ts';
import { openSse } from '../support/sse.ts';
import { everythingStored } from '../support/stored-text.ts';
import { until } from '../support/until.ts';

after(endSharedWorld);

/** The forms in which a text may be kept: as it is, as bytes in hex digits (PostgreSQL's), in base64. */
function forms(secret: string): string[] {
  const bytes = Buffer.from(secret);
  // Of base64 only what does not depend on where the text begins and ends.
  const inBase64 = [0, 1, 2].map((shift) => {
    const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64');
    return text.slice(4, -4);
  });
  return [secret, bytes.toString('hex'), ...inBase64, encodeURIComponent(secret)];
}

/** The service goes on meanwhile: a folder may be gone before it is read, as that of a sandbox that has ended. */
function filesUnder(dir: string): string[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(dir, { withFileTypes: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  return entries.flatMap((entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return filesUnder(path);
    return entry.isFile() ? [path] : [];
  });
}

interface Place {
  name: string;
  holds(secret: string): boolean;
}

/** Everywhere that a secret could be met again: answers, logs, every row of the database, every file. */
async function places(world: World): Promise<Place[]> {
  const stored = await everythingStored(world.db);
  // What is in memory of the database goes to its files as well.
  await world.db.sql`checkpoint`;
  const texts: [string, string][] = world.seen.map(({ request, answer }) => [`answer to ${request}`, answer]);
  // The bootstrap key is printed by the very first start, and that line is not in the log.
  const log = world.service.logs().replace(/^ {2}key .*$/m, '');
  texts.push(['the log', log], ['the database', stored]);
  const found: Place[] = texts.map(([name, text]) => ({ name, holds: (secret) => text.includes(secret) }));
  for (const path of filesUnder(world.service.dataDir)) {
    if (path.endsWith('/bootstrap-key')) continue;
    let bytes: Buffer;
    try {
      bytes = readFileSync(path);
    } catch {
      continue;
    }
    found.push({ name: path, holds: (secret) => bytes.includes(secret) });
  }
  return found;
}

function assertNowhere(all: Place[], what: string, secret: string): void {
  for (const form of forms(secret)) {
    const met = all.filter(({ holds }) => holds(form)).map(({ name }) => name);
    assert.deepEqual(met, [], `${what} is to be met`);
  }
}

/** What is no secret is met in answers, rows and files: the search does find what is there. */
function assertFound(all: Place[], text: string): void {
  const met = all.filter(({ holds }) => holds(text)).map(({ name }) => name);
  assert.ok(
    met.some((name) => name.startsWith('answer to ')),
    text,
  );
  assert.ok(met.includes('the database'), text);
  assert.ok(
    met.some((name) => name.includes('/postgres/data/')),
    text,
  );
}

test('a key value is in the answer that made it and nowhere ever after', async () => {
  const world = await sharedWorld();
  const { call, agentId } = world;
  const path = `/v1/agents/${agentId}/api-keys`;
  const from = world.seen.length;
  const minted = [
    await call('POST', path, { name: 'told once' }, { 'idempotency-key': randomBytes(8).toString('hex') }),
    await call('POST', path, { name: 'told once' }),
    await call('POST', '/v1/api-keys', { name: 'told once', scope: 'edit', binding: 'org-bound' }),
    await call('POST', '/v1/api-keys', { name: 'told once', scope: 'edit', binding: 'agent-bound', agentId }),
  ];
  world.seen.splice(from, minted.length);
  for (const { status, body, text } of minted) {
    assert.equal(status, 201, text);
    const { value } = body;
    const as = world.as(value);
    assert.equal((await as('GET', `/v1/agents/${agentId}`)).status, 200);
    await as('POST', '/api/v1/chat/send', { agentId, content: 'by a new key' });
    await as('POST', path, { name: '' });
    // Mistakes that people make: the key in the query, in the body, under another scheme.
    await call('GET', `/v1/agents?api_key=${value}`);
    await call('POST', '/v1/agents', { apiKey: value });
    await call('POST', '/v1/agents', `{"apiKey": "${value}"`);
    await call('GET', '/v1/agents', undefined, { authorization: `Token ${value}` });
    await call('GET', '/v1/agents', undefined, { authorization: `Bearer ${value.slice(0, -1)}` });
  }
  await call('GET', path);
  await call('GET', '/v1/api-keys');
  await call('DELETE', `${path}/${minted[0]!.body.key.id}`);
  const all = await places(world);
  assertFound(all, 'BY A NEW KEY');
  for (const { body } of minted) assertNowhere(all, 'a key', body.value);
  for (const [name, value] of Object.entries(world.keys)) assertNowhere(all, `the key ${name}`, value);
});

test('a secret of an agent is in no answer, log, event, row or file, neither the new value nor a former one', async () => {
  const world = await sharedWorld();
  const { call, agentId } = world;
  const path = `/v1/agents/${agentId}/secrets/DEEP_SECRET`;
  const values = [1, 2, 3].map(() => `deep-${randomBytes(24).toString('hex')}`);
  for (const value of values) {
    assert.equal((await call('PUT', path, { value })).status, 204);
    // Refused requests, whose texts must not repeat what was sent.
    assert.equal((await call('PUT', path, { value, hosts: value })).status, 400);
    assert.equal((await call('PUT', path, `{"value":"${value}"`)).status, 400);
    assert.equal((await call('PUT', path, { value }, { 'content-type': 'text/plain' })).status, 415);
  }
  const stream = await openSse(`${world.service.url}/api/v1/chat/send`, {
    key: world.keys.owner,
    method: 'POST',
    body: { agentId, content: 'with a secret at hand' },
  });
  await until('the run has ended', () => stream.ended);
  world.seen.push({ request: 'the stream', answer: stream.text });
  await call('GET', `/v1/agents/${agentId}/secrets`);
  const all = await places(world);
  assertFound(all, 'WITH A SECRET AT HAND');
  for (const value of values) assertNowhere(all, 'a secret', value);
  assert.equal((await call('DELETE', path)).status, 204);
});

test("the provider's key is in no answer, log, event, row or file, and the bootstrap key is told once", async () => {
  const world = await sharedWorld();
  assert.equal((await world.send('ask the model')).status, 200);
  assert.equal(world.model.requests.at(-1)?.headers['authorization'], `Bearer ${world.modelKey}`);
  const all = await places(world);
  assertNowhere(all, "the provider's key", world.modelKey);
  assertNowhere(all, 'the bootstrap key', world.service.key);
  assert.equal(world.service.logs().split(world.service.key).length, 2);
  assert.equal(lstatSync(join(world.service.dataDir, 'bootstrap-key')).mode & 0o777, 0o600);
});
