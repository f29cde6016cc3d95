import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { answerQuery, SyntheticNames } from '../src/dns.ts';

function query(name: string, type = 1): Buffer {
  const labels = name
    .split('.')
    .map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  const head = Buffer.from([0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  return Buffer.concat([head, ...labels, Buffer.from([0, 0, type, 0, 1])]);
}

const addressIn = (answer: Buffer) => [...answer.subarray(-4)].join('.');

test('a name has one made-up address, by which it is found again', () => {
  const names = new SyntheticNames();
  const answer = answerQuery(query('Registry.Example'), names)!;
  assert.deepEqual([...answer.subarray(0, 8)], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1]);
  const address = addressIn(answer);
  assert.match(address, /^198\.1[89]\./);
  assert.equal(names.nameOf(address), 'registry.example');
  assert.equal(addressIn(answerQuery(query('registry.example'), names)!), address);
  assert.notEqual(addressIn(answerQuery(query('other.example'), names)!), address);
  assert.equal(names.nameOf('93.184.216.34'), null);
  assert.equal(addressIn(answerQuery(query('localhost'), names)!), '127.0.0.1');
});

test('other types exist and are empty, so that nobody waits for them', () => {
  const answer = answerQuery(query('registry.example', 28), new SyntheticNames())!;
  assert.equal(answer.readUInt16BE(6), 0);
  assert.equal(answer[3]! & 15, 0);
});

test('names that are made up without end push out the oldest, and never share an address', () => {
  const names = new SyntheticNames();
  for (let i = 0; i < 200_000; i += 1) names.addressOf(`n${i}.example`);
  const last = addressIn(answerQuery(query('n199999.example'), names)!);
  assert.equal(names.nameOf(last), 'n199999.example');
  const kept = Array.from({ length: 49_000 }, (_, i) => names.addressOf(`n${199_999 - i}.example`));
  assert.equal(new Set(kept).size, kept.length);
});

test('what is no query gets no answer', (t) => {
  const seed = randomInt(2 ** 31);
  t.diagnostic(`seed ${seed}`);
  const names = new SyntheticNames();
  let state = seed;
  const random = (below: number) =>
    ((state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0) >>> 8) % below;
  assert.equal(answerQuery(Buffer.alloc(0), names), null);
  const response = query('a.example');
  response[2] = 0x81;
  assert.equal(answerQuery(response, names), null);
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = query('some.name.example');
    for (let edit = 0; edit < 3; edit += 1) bytes[random(bytes.length)] = random(256);
    const answer = answerQuery(bytes.subarray(0, random(bytes.length + 1)), names);
    assert.ok(answer === null || answer.length < 512, `seed ${seed}`);
  }
});
