import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { limits } from '../../src/domain/limits.ts';
import { tarHeader } from '../../src/domain/tar.ts';
import type { EdgeWorld } from '../support/edge-world.ts';
import { filesWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
let origin: string;
let workspace: string;
before(async () => {
  ({ world, origin, workspace } = await filesWorld());
});
after(() => world.close());

interface Given {
  key?: string;
  body?: string | Uint8Array;
  headers?: Record<string, string>;
}

/** Over the wire, where ranges, HEAD and cut connections are what they are. */
function ask(method: string, path: string, { key = world.keys.owner, body, headers = {} }: Given = {}) {
  return fetch(`${origin}/sandbox/${world.agent.id}/files${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, ...headers },
    ...(body === undefined ? {} : { body: body as NonNullable<RequestInit['body']> }),
  });
}

interface Listed {
  files: {
    name: string;
    href: string;
    type: string;
    sizeBytes: number;
    target: string | null;
    mode: string;
  }[];
  nextCursor: string | null;
}

test('bytes are written and read as they are, relative to the workspace or absolute', async () => {
  const bytes = Buffer.from([0, 1, 2, 255, 254, 10, 13, 0]);
  const made = await ask('PUT', '/reports/data.bin', { body: bytes });
  assert.equal(made.status, 201);
  const { file } = (await made.json()) as { file: { href: string; sizeBytes: number; mode: string } };
  assert.deepEqual([file.sizeBytes, file.mode], [8, '644']);
  assert.equal(made.headers.get('location'), file.href);
  const base = '/reports/data.bin';
  for (const path of [
    base,
    '//workspace/reports/data.bin',
    '/%2Fworkspace/reports/data.bin',
    '/reports//data.bin',
  ]) {
    const read = await ask('GET', path);
    assert.equal(read.status, 200, path);
    assert.deepEqual(Buffer.from(await read.arrayBuffer()), bytes, path);
    assert.equal(read.headers.get('content-type'), 'application/octet-stream');
    assert.equal(read.headers.get('content-length'), '8');
    assert.match(read.headers.get('content-disposition')!, /^attachment; filename="data.bin"/);
    assert.match(read.headers.get('content-security-policy')!, /sandbox/);
  }
  const again = await ask('PUT', base, { body: 'new' });
  assert.equal(again.status, 200);
  assert.notEqual(again.headers.get('etag'), made.headers.get('etag'));
  const home = await ask('PUT', '//home/agent/.profile', { body: 'x' });
  assert.equal(home.status, 201);
  assert.ok(existsSync(join(world.volumesDir, world.agent.id, 'home', '.profile')));
  const outside = await ask('GET', '//etc/passwd');
  assert.equal(outside.status, 400);
  assert.match(await outside.text(), /under \/workspace or \/home\/agent/);
});

test('ranges give the part that was asked for, and say what is wrong with others', async () => {
  await ask('PUT', '/digits', { body: '0123456789' });
  const part = async (range: string, more: Record<string, string> = {}) => {
    const reply = await ask('GET', '/digits', { headers: { range, ...more } });
    return [reply.status, reply.headers.get('content-range'), await reply.text()];
  };
  assert.deepEqual(await part('bytes=2-4'), [206, 'bytes 2-4/10', '234']);
  assert.deepEqual(await part('bytes=7-'), [206, 'bytes 7-9/10', '789']);
  assert.deepEqual(await part('bytes=-3'), [206, 'bytes 7-9/10', '789']);
  assert.deepEqual(await part('bytes=-30'), [206, 'bytes 0-9/10', '0123456789']);
  assert.deepEqual(await part('bytes=5-99'), [206, 'bytes 5-9/10', '56789']);
  assert.deepEqual(await part('bytes=10-'), [416, 'bytes */10', '']);
  assert.deepEqual(await part('bytes=-0'), [416, 'bytes */10', '']);
  for (const range of [
    'bytes=4-2',
    'bytes=a-b',
    'lines=1-2',
    'bytes=0-1,3-4',
    'bytes=-',
    'bytes=99999999999999999999-',
  ])
    assert.deepEqual(await part(range), [200, null, '0123456789'], range);
  const etag = (await ask('HEAD', '/digits')).headers.get('etag')!;
  assert.deepEqual(await part('bytes=0-1', { 'if-range': etag }), [206, 'bytes 0-1/10', '01']);
  assert.deepEqual((await part('bytes=0-1', { 'if-range': '"other"' }))[0], 200);
});

test('HEAD tells what GET would send, and If-None-Match saves sending it', async () => {
  await ask('PUT', '/headed', { body: 'headed' });
  const head = await ask('HEAD', '/headed');
  assert.deepEqual([head.status, head.headers.get('content-length'), await head.text()], [200, '6', '']);
  const etag = head.headers.get('etag')!;
  const same = await ask('GET', '/headed', { headers: { 'if-none-match': `"x", W/${etag}` } });
  assert.deepEqual([same.status, await same.text()], [304, '']);
  await ask('PUT', '/headed', { body: 'changed' });
  assert.equal((await ask('GET', '/headed', { headers: { 'if-none-match': etag } })).status, 200);
  for (const path of ['/', '/?archive=tar']) assert.equal((await ask('HEAD', path)).status, 200, path);
  assert.equal((await ask('HEAD', '/missing')).status, 404);
});

test('a folder is listed in pages by name, with an address for every name, whatever bytes it has', async () => {
  mkdirSync(join(workspace, 'names'));
  const odd = [
    Buffer.from('a b'),
    Buffer.from('q?#%'),
    Buffer.from('ü'),
    Buffer.from('x\ny'),
    Buffer.from([0x66, 0xff]),
    Buffer.from('\x1b[2J"; rm'),
  ];
  for (const name of odd) writeFileSync(Buffer.concat([Buffer.from(`${workspace}/names/`), name]), name);
  symlinkSync('/etc/shadow', join(workspace, 'names', 'z-link'));
  const seen: Listed['files'] = [];
  for (let cursor: string | null = null, pages = 0; pages === 0 || cursor; pages += 1) {
    const query = `?list&limit=3${cursor ? `&cursor=${cursor}` : ''}`;
    const page = (await (await ask('GET', `/names/${query}`)).json()) as Listed;
    seen.push(...page.files);
    cursor = page.nextCursor;
  }
  assert.equal(seen.length, odd.length + 1);
  const shown = seen.find(({ name }) => name === 'z-link')!;
  assert.deepEqual([shown.type, shown.target], ['link', '/etc/shadow']);
  for (const entry of seen.filter(({ type }) => type === 'file')) {
    const reply = await fetch(`${origin}${entry.href}`, {
      headers: { authorization: `Bearer ${world.keys.owner}` },
    });
    assert.equal(reply.status, 200, entry.href);
    const content = Buffer.from(await reply.arrayBuffer());
    assert.ok(
      odd.some((name) => name.equals(content)),
      entry.href,
    );
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(reply.headers.get('content-disposition')!, /[\x00-\x1f\x7f-\xff]|"; rm/);
  }
  const link = await ask('GET', '/names/z-link');
  assert.equal(link.status, 409);
  assert.match(await link.text(), /not followed/);
  const cursor = ((await (await ask('GET', '/names?limit=1')).json()) as Listed).nextCursor;
  const elsewhere = await ask('GET', `/reports?limit=1&cursor=${cursor}`);
  assert.equal(elsewhere.status, 400);
  const root = await fetch(`${origin}/sandbox/${world.agent.id}/files`, {
    headers: { authorization: `Bearer ${world.keys.use}` },
  });
  assert.ok(
    ((await root.json()) as Listed).files.some(
      ({ name, href }) => name === 'names' && href.endsWith('/names/'),
    ),
  );
});

test('archives go out and come in, plain and compressed', async () => {
  await ask('PUT', '/tree/a/one', { body: 'one' });
  await ask('PUT', '/tree/two', { body: 'two' });
  const tar = await ask('GET', '/tree', { headers: { accept: 'application/x-tar' } });
  assert.equal(tar.headers.get('content-type'), 'application/x-tar');
  assert.match(tar.headers.get('content-disposition')!, /filename="tree.tar"/);
  const bytes = Buffer.from(await tar.arrayBuffer());
  assert.equal(execFileSync('tar', ['-tf', '-'], { input: bytes, encoding: 'utf8' }), 'a/\na/one\ntwo\n');
  for (const [type, body] of [
    ['application/x-tar', bytes],
    ['application/gzip', gzipSync(bytes)],
  ] as const) {
    const target = `/copied-${type.slice(-3)}`;
    const put = await ask('PUT', target, { body, headers: { 'content-type': type } });
    assert.equal(put.status, 200);
    assert.deepEqual(await put.json(), { file: null, unpacked: { entries: 3, bytes: 6 } });
    assert.equal(readFileSync(join(workspace, target, 'a/one'), 'utf8'), 'one');
  }
  const single = await ask('GET', '/tree/two?archive=tar');
  assert.equal(
    execFileSync('tar', ['-xOf', '-'], { input: Buffer.from(await single.arrayBuffer()), encoding: 'utf8' }),
    'two',
  );
});

test('a bad or bomb-like archive is refused with what is wrong, and nothing is there', async () => {
  const put = async (body: Uint8Array, type: string) => {
    const reply = await ask('PUT', '/bad', { body, headers: { 'content-type': type } });
    return [reply.status, ((await reply.json()) as { code: string }).code];
  };
  const zeros = Buffer.alloc(40_000_000);
  assert.deepEqual(await put(Buffer.from('no tar at all'), 'application/x-tar'), [400, 'invalid_request']);
  assert.deepEqual(await put(Buffer.from('no gzip at all'), 'application/gzip'), [400, 'invalid_request']);
  const entry = tarHeader({
    path: Buffer.from('zeros'),
    kind: 'file',
    mode: 0o644,
    sizeBytes: zeros.length,
    target: Buffer.alloc(0),
    mtimeSeconds: 0,
  });
  const cut = gzipSync(Buffer.concat([entry, zeros])).subarray(0, 5_000);
  assert.deepEqual(await put(cut, 'application/gzip'), [400, 'invalid_request']);
  const dir = join(world.volumesDir, 'bomb');
  mkdirSync(dir);
  writeFileSync(join(dir, 'zeros'), zeros);
  writeFileSync(join(dir, 'zeroes'), zeros);
  const bomb = gzipSync(execFileSync('tar', ['-C', dir, '-cf', '-', '.'], { maxBuffer: 1e9 }));
  assert.ok(bomb.length < 200_000);
  assert.deepEqual(await put(bomb, 'application/gzip'), [413, 'body_too_large']);
  assert.ok(!existsSync(join(workspace, 'bad')));
  assert.deepEqual(readdirSync(join(world.volumesDir, world.agent.id, 'staging')), []);
});

test('a packed archive that lacks any of its last bytes is refused, and nothing of it is there', async () => {
  const dir = join(world.volumesDir, 'short');
  mkdirSync(dir);
  writeFileSync(join(dir, 'file'), 'content');
  const packed = gzipSync(execFileSync('tar', ['-C', dir, '-cf', '-', '.']));
  const put = (body: Uint8Array) =>
    ask('PUT', '/short', { body, headers: { 'content-type': 'application/gzip' } });
  for (let missing = 1; missing <= 20; missing += 1) {
    const reply = await put(packed.subarray(0, -missing));
    assert.equal(reply.status, 400, `without the last ${missing} bytes`);
    const { code, details } = (await reply.json()) as { code: string; details: { path: string }[] };
    assert.deepEqual([code, details[0]?.path], ['invalid_request', 'body']);
  }
  const otherSum = Buffer.from(packed);
  otherSum[packed.length - 8]! ^= 1;
  assert.equal((await put(otherSum)).status, 400);
  assert.ok(!existsSync(join(workspace, 'short')));
  assert.equal((await put(packed)).status, 200);
});

test('what follows the end of a packed archive is bounded by the room in the sandbox', async () => {
  const reply = await ask('PUT', '/tail', {
    body: gzipSync(Buffer.alloc(70_000_000)),
    headers: { 'content-type': 'application/gzip' },
  });
  assert.equal(reply.status, 413);
  assert.ok(!existsSync(join(workspace, 'tail')));
});

test('a folder is made by its slash, and deleted with what is in it only when that is said', async () => {
  assert.equal((await ask('PUT', '/made/deep/')).status, 201);
  assert.equal((await ask('PUT', '/made/deep/')).status, 200);
  assert.equal((await ask('PUT', '/made/deep/', { body: 'content' })).status, 415);
  await ask('PUT', '/made/deep/file', { body: 'x' });
  assert.equal((await ask('PUT', '/made/deep', { body: 'x' })).status, 409);
  const refused = await ask('DELETE', '/made');
  assert.equal(refused.status, 409);
  assert.match(await refused.text(), /recursive=true/);
  assert.equal((await ask('DELETE', '/made?recursive=true')).status, 204);
  assert.equal((await ask('DELETE', '/made?recursive=true')).status, 404);
  assert.equal((await ask('DELETE', '/')).status, 409);
});

test('a mode is set when it is asked for, and nonsense is refused by its name', async () => {
  const made = await ask('PUT', '/tool?mode=755', { body: '#!/bin/sh\n' });
  assert.equal(((await made.json()) as { file: { mode: string } }).file.mode, '755');
  for (const [mode, set] of [
    ['0640', '640'],
    ['000', '000'],
    ['0000', '000'],
  ]) {
    const changed = await ask('PUT', `/tool?mode=${mode}`, { body: 'x' });
    assert.deepEqual(
      [changed.status, ((await changed.json()) as { file: { mode: string } }).file.mode],
      [200, set],
    );
  }
  for (const mode of ['4755', '1755', '00755', '75', '999', '0999', 'rwx', '']) {
    const refused = await ask('PUT', `/tool?mode=${mode}`, { body: 'x' });
    assert.equal(refused.status, 400, mode);
    assert.match(await refused.text(), /three octal digits, such as 755, or four with a leading 0/, mode);
  }
});

test('dots, NULs, bad escapes and long names are refused, on the wire as well', async () => {
  const raw = (path: string) =>
    new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(origin);
      const socket = connect(Number(port), hostname);
      let text = '';
      socket
        .setEncoding('utf8')
        .on('data', (part) => (text += part))
        .on('error', reject)
        .on('close', () => resolve(text));
      socket.write(
        `GET /sandbox/${world.agent.id}/files/${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${world.keys.owner}\r\n\r\n`,
      );
    });
  for (const path of [
    '../../../etc/passwd',
    '%2e%2e/%2e%2e/x',
    '%2E%2E%2Fx',
    'a/./b',
    'a/%2e./b',
    '%00',
    'a%00b',
    '%',
    '%zz',
    'n'.repeat(256),
    'd/'.repeat(300),
  ])
    assert.match(await raw(path), /^HTTP\/1\.1 40[04] /, path);
  assert.match(await raw('..%2f..%2fetc/passwd'), /^HTTP\/1\.1 400 /);
});

test('what is larger than the room in the sandbox is refused, declared or not', async () => {
  const declared = await ask('PUT', '/large', { body: new Uint8Array(51 * 1024 * 1024) }).catch(() => null);
  if (declared) assert.equal(declared.status, 413);
  const status = await new Promise<number | undefined>((resolve) => {
    const upload = request(`${origin}/sandbox/${world.agent.id}/files/large`, {
      method: 'PUT',
      agent: false,
      headers: { authorization: `Bearer ${world.keys.owner}` },
    });
    upload.on('response', (response) => {
      response.resume();
      resolve(response.statusCode);
      upload.destroy();
    });
    upload.on('error', () => resolve(undefined));
    const piece = Buffer.alloc(1024 * 1024);
    const more = (left: number): void =>
      void (left > 0 && !upload.destroyed && upload.write(piece, () => more(left - 1)));
    more(60);
  });
  assert.equal(status, 413);
  assert.ok(!existsSync(join(workspace, 'large')));
});

test('an upload that its client breaks off changes nothing', async () => {
  await ask('PUT', '/half', { body: 'whole' });
  const upload = request(`${origin}/sandbox/${world.agent.id}/files/half`, {
    method: 'PUT',
    agent: false,
    headers: { authorization: `Bearer ${world.keys.owner}`, 'content-length': '1000' },
  });
  upload.on('error', () => {});
  upload.write('half of it');
  const staging = join(world.volumesDir, world.agent.id, 'staging');
  await until('it arrives', () => readdirSync(staging).length === 1);
  upload.destroy();
  await until('it is cleared away', () => readdirSync(staging).length === 0);
  assert.equal(await (await ask('GET', '/half')).text(), 'whole');
});

test('a key of scope use reads and writes nothing; a foreign one finds nothing, whatever it asks', async () => {
  const { use, foreign } = world.keys;
  assert.equal((await ask('GET', '/digits', { key: use })).status, 200);
  for (const [method, body] of [
    ['PUT', 'x'],
    ['DELETE', undefined],
  ] as const) {
    const given: Given = { key: use };
    if (body !== undefined) given.body = body;
    assert.equal((await ask(method, '/digits', given)).status, 403);
  }
  for (const [method, path] of [
    ['GET', '/digits'],
    ['GET', '/'],
    ['GET', '/%00'],
    ['PUT', '/x'],
    ['PUT', '/x/?mode=9'],
    ['DELETE', '/digits'],
    ['GET', '/digits?limit=0'],
  ] as const) {
    const reply = await ask(method, path, { key: foreign });
    assert.deepEqual(
      [reply.status, await reply.text()],
      [404, '{"error":"Not found.","code":"not_found"}'],
      path,
    );
  }
  assert.equal(await (await ask('GET', '/digits')).text(), '0123456789');
});

test('uploads that are under way together have no more room than one', async () => {
  const put = (name: string) =>
    request(`${origin}/sandbox/${world.agent.id}/files/${name}`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${world.keys.owner}` },
    });
  const statusOf = (upload: ReturnType<typeof put>) =>
    new Promise<number>((resolve, reject) =>
      upload.once('error', reject).once('response', (reply) => {
        reply.resume();
        resolve(reply.statusCode!);
      }),
    );
  const half = Buffer.alloc(30 * 1024 * 1024);
  const first = put('first-half');
  const firstStatus = statusOf(first);
  firstStatus.catch(() => {});
  first.write(half);
  const staging = join(world.volumesDir, world.agent.id, 'staging');
  const arrived = () =>
    existsSync(staging) &&
    readdirSync(staging).some((name) => {
      const { size } = statSync(join(staging, name, 'it'), { throwIfNoEntry: false }) ?? { size: 0 };
      return size === half.length;
    });
  await until('the first has arrived', arrived);
  const second = put('second-half');
  const secondStatus = statusOf(second);
  second.end(half);
  assert.equal(await secondStatus, 413);
  first.end();
  assert.equal(await firstStatus, 201);
  assert.equal((await ask('DELETE', '/first-half')).status, 204);
});

test('only so many archives of an agent are read at once, since each holds descriptors', async () => {
  writeFileSync(join(workspace, 'large'), Buffer.alloc(30 * 1024 * 1024));
  const readers = Array.from({ length: limits.archives.ofAgent }, () => {
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    socket.write(
      `GET /sandbox/${world.agent.id}/files/?archive=tar HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${world.keys.owner}\r\n\r\n`,
    );
    return socket;
  });
  // None of them may be asked for its place by the requests below, so each has its answer begun first, and reads no further.
  for (const socket of readers) {
    const [first] = (await once(socket, 'data')) as [Buffer];
    socket.pause();
    assert.match(first.toString('latin1'), /^HTTP\/1\.1 200 /);
  }
  const refused = await ask('GET', '/?archive=tar');
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('retry-after'), '5');
  for (const socket of readers) socket.destroy();
  await until('an archive is read again', async () => {
    const reply = await ask('GET', '/?archive=tar');
    await reply.body?.cancel();
    return reply.status === 200;
  });
});
