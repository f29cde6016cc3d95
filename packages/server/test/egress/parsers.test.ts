import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { createSecureContext, TLSSocket } from 'node:tls';
import { parseAddress } from '../../src/domain/address-ranges.ts';
import {
  matchesTarget,
  parseDenyRule,
  parseEgressRule,
  readHostName,
  readTarget,
} from '../../src/domain/egress-rules.ts';
import { egressPresets } from '../../src/domain/egress-presets.ts';
import { readHosts } from '../../src/domain/hosts.ts';
import { readFirstBytes } from '../../src/egress/client-hello.ts';
import { clientHello, randomFrom } from './wire.ts';

/** The name that OpenSSL, as a server, reads out of these bytes; null when it reads none. */
function nameForServer(bytes: Buffer): Promise<string | null> {
  return new Promise((resolve) => {
    let name: string | null = null;
    const wire = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const tls = new TLSSocket(wire, {
      isServer: true,
      SNICallback(found, done) {
        name = found;
        done(null, createSecureContext());
      },
    });
    const end = () => {
      tls.destroy();
      resolve(name);
    };
    tls.on('error', end);
    wire.push(bytes);
    wire.push(null);
    setTimeout(end, 15);
  });
}

/** The same handshake message, cut into records of other sizes (RFC 8446, section 5.1). */
function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    const head = Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]);
    records.push(head, part);
  }
  return Buffer.concat(records);
}

test('the name of a ClientHello is found however it is cut into reads and records, and not a byte earlier', async () => {
  for (const options of [{}, { maxVersion: 'TLSv1.2' }, { ALPNProtocols: ['h2', 'http/1.1'] }]) {
    const hello = await clientHello('Registry.Example', options);
    for (const size of [Math.ceil(hello.length / 60), 50, 199, 1_000, hello.length]) {
      const bytes = inRecords(hello, size);
      for (let end = 0; end < bytes.length; end += 1) {
        assert.deepEqual(readFirstBytes(bytes.subarray(0, end)), { kind: 'more' }, `${size} ${end}`);
      }
      const wanted = { kind: 'hello', serverName: 'registry.example', hidesName: false };
      assert.deepEqual(readFirstBytes(bytes), wanted);
      assert.deepEqual(readFirstBytes(Buffer.concat([bytes, Buffer.from('early data')])), wanted);
    }
  }
  assert.deepEqual(readFirstBytes(await clientHello('')), {
    kind: 'hello',
    serverName: null,
    hidesName: false,
  });
});

/** Adds an extension at the end of a hello in one record, with all lengths put right. */
function withExtension(hello: Buffer, type: number, data: Buffer): Buffer {
  const head = Buffer.from([type >> 8, type & 255, data.length >> 8, data.length & 255]);
  const bytes = Buffer.concat([hello, head, data]);
  const added = head.length + data.length;
  bytes.writeUInt16BE(bytes.readUInt16BE(3) + added, 3);
  bytes.writeUIntBE(bytes.readUIntBE(6, 3) + added, 6, 3);
  // Past the version, random, session id, ciphers and compression.
  let at = 9 + 34;
  at += 1 + bytes[at]!;
  at += 2 + bytes.readUInt16BE(at);
  at += 1 + bytes[at]!;
  bytes.writeUInt16BE(bytes.readUInt16BE(at) + added, at);
  return bytes;
}

test('an Encrypted ClientHello is seen; a second name, and a list of two names, are not read at all', async () => {
  const hello = await clientHello('good.test');
  const hidden = readFirstBytes(withExtension(hello, 0xfe0d, Buffer.alloc(40)));
  assert.deepEqual(hidden, { kind: 'hello', serverName: 'good.test', hidesName: true });
  const entry = (name: string) => Buffer.concat([Buffer.from([0, 0, name.length]), Buffer.from(name)]);
  const list = (...entries: Buffer[]) => {
    const all = Buffer.concat(entries);
    return Buffer.concat([Buffer.from([0, all.length]), all]);
  };
  assert.equal(readFirstBytes(withExtension(hello, 0, list(entry('evil.test')))).kind, 'broken');
  const nameless = await clientHello('');
  assert.equal(
    readFirstBytes(withExtension(nameless, 0, list(entry('a.test'), entry('b.test')))).kind,
    'broken',
  );
  assert.equal(readFirstBytes(withExtension(nameless, 0, list())).kind, 'broken');
  assert.equal(readFirstBytes(Buffer.from('SSH-2.0-x')).kind, 'other');
  assert.equal(readFirstBytes(Buffer.from([22, 2, 0, 0, 0])).kind, 'broken');
  assert.equal(readFirstBytes(Buffer.from([22, 3, 1, 0x40, 0x01])).kind, 'broken');
  assert.equal(readFirstBytes(Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0])).kind, 'broken', 'a ServerHello');
});

test('of a damaged ClientHello no other name is read than by OpenSSL', async (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const random = randomFrom(seed);
  const originals = [
    await clientHello('good.test'),
    await clientHello(''),
    withExtension(await clientHello('good.test'), 0, Buffer.from('\0\x0c\0\0\x09evil.test', 'latin1')),
  ];
  const read = { hello: 0, name: 0 };
  for (let round = 0; round < 250; round += 1) {
    let bytes = Buffer.from(originals[random(3)]!);
    const edits = 1 + random(3);
    for (let edit = 0; edit < edits; edit += 1) {
      const at = random(bytes.length);
      const kind = random(4);
      if (kind === 0) bytes[at] = random(256);
      if (kind === 1) bytes[at]! ^= 1 << random(8);
      if (kind === 2) bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1)]);
      if (kind === 3)
        bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from([random(256)]), bytes.subarray(at)]);
    }
    const ours = readFirstBytes(bytes);
    const theirs = await nameForServer(bytes);
    if (ours.kind === 'hello') read.hello += 1;
    if (theirs === null) continue;
    read.name += 1;
    if (ours.kind !== 'hello') continue;
    assert.equal(
      ours.serverName,
      theirs.toLowerCase(),
      `seed ${seed}, round ${round}: ${bytes.toString('hex')}`,
    );
  }
  assert.ok(read.hello > 10 && read.name > 10, `seed ${seed}: too few were read to tell anything`);
});

test('random first bytes neither throw nor take long', (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const random = randomFrom(seed);
  for (let round = 0; round < 5_000; round += 1) {
    const bytes = Buffer.from(Array.from({ length: random(80) }, () => random(256)));
    if (round % 2 === 0 && bytes.length > 5) bytes.set([22, 3, random(4), 0, random(80), 1], 0);
    assert.ok(readFirstBytes(bytes).kind, `seed ${seed}, round ${round}`);
  }
  // A message in more records than anybody needs, which would be read anew with each byte that comes.
  const longest = Buffer.concat([Buffer.alloc(5), Buffer.from([1, 0, 0x7f, 0xf0]), Buffer.alloc(0x7ff0)]);
  assert.equal(readFirstBytes(inRecords(longest, 1)).kind, 'broken');
  assert.equal(readFirstBytes(inRecords(longest, 600).subarray(0, -1)).kind, 'more');
  assert.equal(readFirstBytes(Buffer.from([22, 3, 1, 0, 4, 1, 0, 0xff, 0xff])).kind, 'broken');
});

test('a target has one form, which is that of URL, or is none', () => {
  const same: [string, string, number][] = [
    ['Good.Test.:443', 'good.test', 443],
    ['0x7f.1:80', '127.0.0.1', 80],
    ['2130706433:80', '127.0.0.1', 80],
    ['[::FFFF:1.2.3.4]:80', '1.2.3.4', 80],
    ['[2001:DB8:0:0::7]:80', '2001:db8::7', 80],
    ['xn--bcher-kva.example:443', 'xn--bcher-kva.example', 443],
  ];
  for (const [text, host, port] of same) assert.deepEqual(readTarget(text, null), { host, port });
  const none = [
    '',
    ':80',
    'a',
    'a:',
    'a:b:80',
    'a..b:80',
    '.a:80',
    'a b:80',
    'bücher.example:80',
    '[::1:80',
    '::1:80',
  ];
  none.push(
    'a:080000',
    'a@b:80',
    'a/b:80',
    '[fe80::1%1]:80',
    '[11]:80',
    '[203.0.113.7]:80',
    '1.2.3.4.5:80',
    '256.1.1.1:80',
    '09.1:80',
    `${'a'.repeat(64)}.b:80`,
  );
  for (const text of none) assert.equal(readTarget(text, null), null, text);
});

test('whatever a target is written like, rules and URL see the same host', (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const random = randomFrom(seed);
  const alphabet = 'aA1.-_0x:[]%@/#?\\ f\t8é。'.split('');
  let read = 0;
  for (let round = 0; round < 30_000; round += 1) {
    const text = Array.from({ length: 1 + random(10) }, () => alphabet[random(alphabet.length)]).join('');
    const target = readTarget(`${text}:8080`, null);
    if (!target) continue;
    read += 1;
    const url = new URL(`http://${text}:8080/`);
    const host = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
    const mapped = host.startsWith('::ffff:');
    if (!mapped) assert.equal(target.host, host, `seed ${seed}: ${text}`);
    assert.equal(url.port, '8080');
    // Reading again what was read changes nothing.
    const again = target.host.includes(':') ? `[${target.host}]` : target.host;
    assert.deepEqual(readTarget(`${again}:8080`, null), target, `seed ${seed}: ${text}`);
    assert.ok(readHostName(target.host) !== null || parseAddress(target.host) !== null);
  }
  assert.ok(read > 300, `seed ${seed}: too few could be read`);
});

test('rules match their host and port, and no other', () => {
  const cases: [rule: string, yes: string[], no: string[]][] = [
    ['a.example', ['a.example:80', 'a.example:443'], ['b.a.example:443', 'a.example:22', 'aa.example:443']],
    ['A.Example:8443', ['a.example:8443'], ['a.example:443']],
    ['a.example:*', ['a.example:1', 'a.example:65535'], ['b.example:1']],
    [
      '*.a.example',
      ['b.a.example:443', 'c.b.a.example:80'],
      ['a.example:443', 'ba.example:443', 'b.a.example:8080'],
    ],
    ['203.0.113.7', ['203.0.113.7:80', '[::ffff:203.0.113.7]:443'], ['203.0.113.8:80', '203.0.113.7:22']],
    ['203.0.113.0/24:*', ['203.0.113.255:22'], ['203.0.114.0:22', 'a.example:22']],
    ['[2001:db8::]/32:443', ['[2001:db8:1::1]:443'], ['[2001:db9::1]:443', '[2001:db8::1]:80']],
    ['a.example:22/tcp', ['a.example:22'], ['a.example:443']],
  ];
  for (const [text, yes, no] of cases) {
    const rule = parseEgressRule(text)!;
    for (const target of yes) assert.ok(matchesTarget(rule, readTarget(target, null)!), `${text} ${target}`);
    for (const target of no) assert.ok(!matchesTarget(rule, readTarget(target, null)!), `${text} ${target}`);
  }
  assert.equal(parseEgressRule('a.example:22/tcp')!.isUnread, true);
  // Where no port is named, what is denied is denied on all of them.
  const denied: [rule: string, yes: string[], no: string[]][] = [
    ['a.example', ['a.example:80', 'a.example:443', 'a.example:22', 'a.example:9443'], ['b.a.example:443']],
    ['a.example/tcp', ['a.example:443', 'a.example:5432'], ['b.example:5432']],
    ['a.example:8443', ['a.example:8443'], ['a.example:443', 'a.example:9443']],
    ['a.example:*', ['a.example:1', 'a.example:65535'], ['b.example:1']],
    ['*.a.example', ['b.a.example:443', 'b.a.example:8080'], ['a.example:443', 'a.example:8080']],
    ['*.a.example:443', ['b.a.example:443'], ['b.a.example:8080']],
    ['203.0.113.7', ['203.0.113.7:80', '[::ffff:203.0.113.7]:22'], ['203.0.113.8:80']],
    ['203.0.113.0/24', ['203.0.113.255:22'], ['203.0.114.0:22', 'a.example:22']],
    ['203.0.113.0/24:443', ['203.0.113.255:443'], ['203.0.113.255:22']],
    ['[2001:db8::]/32', ['[2001:db8:1::1]:22'], ['[2001:db9::1]:22']],
  ];
  for (const [text, yes, no] of denied) {
    const rule = parseDenyRule(text)!;
    for (const target of yes) assert.ok(matchesTarget(rule, readTarget(target, null)!), `${text} ${target}`);
    for (const target of no) assert.ok(!matchesTarget(rule, readTarget(target, null)!), `${text} ${target}`);
  }
  for (const text of [
    '*',
    '*.',
    '**.a',
    'a.*',
    '*:443',
    'a/24',
    '1.2.3.4/33',
    '0x7f.1',
    '127.1',
    'a:1:2',
    'http://a.b',
    '[::1',
    'a.b/udp',
  ]) {
    assert.equal(parseEgressRule(text), null, text);
    assert.equal(parseDenyRule(text), null, text);
  }
});

test('every host of every preset is a rule, by name, and has a source', () => {
  for (const [name, preset] of Object.entries(egressPresets)) {
    assert.match(name, /^[a-z]+$/);
    assert.match(preset.source, /^https:\/\//);
    for (const host of preset.hosts) assert.match(parseEgressRule(host)?.kind ?? '', /^(host|below)$/, host);
  }
});

test("a name of an operator's own network is a host of a secret where that is allowed; one without a dot never is", () => {
  const read = (host: string, allowLocal: boolean) => readHosts('hosts', [host], { allowLocal });
  for (const host of ['git.internal', 'api.localhost:8443', '*.corp.lan']) {
    assert.deepEqual(read(host, true), [host]);
    assert.throws(() => read(host, false), /BERTH_ALLOW_PRIVATE_NETWORKS/);
  }
  for (const host of ['localhost', 'localhost:8443', 'git', '*.internal']) {
    for (const allowLocal of [true, false]) {
      assert.throws(() => read(host, allowLocal), /must have a dot/, host);
    }
  }
  assert.throws(() => read('127.0.0.1', true), /IP address/);
});
