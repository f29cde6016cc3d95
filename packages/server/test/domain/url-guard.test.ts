import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isPublicAddress, parseAddress, parseNetwork } from '../../src/domain/address-ranges.ts';
import { checkPublicUrl, UrlRefused } from '../../src/domain/url-guard.ts';

const protocols = ['https:'];
const lookup = async (): Promise<string[]> => ['93.184.215.14'];

const closed = [
  'https://127.0.0.1/',
  'https://127.1/',
  'https://2130706433/',
  'https://0x7f000001/',
  'https://0177.0.0.1/',
  'https://0x7f.0.0.1/',
  'https://127.0.0.1./',
  'https://0/',
  'https://0.0.0.0/',
  'https://10.0.0.1/',
  'https://172.16.0.1/',
  'https://172.31.255.255/',
  'https://192.168.1.1/',
  'https://100.64.0.1/',
  'https://169.254.169.254/',
  'https://168.63.129.16/',
  'https://192.0.0.192/',
  'https://198.18.0.1/',
  'https://224.0.0.1/',
  'https://255.255.255.255/',
  'https://240.0.0.1/',
  'https://192.0.2.1/',
  'https://198.51.100.1/',
  'https://203.0.113.1/',
  'https://[::]/',
  'https://[::1]/',
  'https://[::ffff:127.0.0.1]/',
  'https://[::ffff:7f00:1]/',
  'https://[::127.0.0.1]/',
  'https://[::ffff:0:127.0.0.1]/',
  'https://[64:ff9b::7f00:1]/',
  'https://[64:ff9b::169.254.169.254]/',
  'https://[64:ff9b:1::1]/',
  'https://[2002:7f00:1::]/',
  'https://[2002:a9fe:a9fe::1]/',
  'https://[2001::1]/',
  'https://[fe80::1]/',
  'https://[fc00::1]/',
  'https://[fd00:ec2::254]/',
  'https://[ff02::1]/',
  'https://[2001:db8::1]/',
  'https://[3fff::1]/',
  'https://[fec0::1]/',
  'https://①②⑦.0.0.1/',
  'https://127。0。0。1/',
];

for (const url of closed) {
  test(`${url} is refused as private or reserved`, async () => {
    await assert.rejects(checkPublicUrl(url, { protocols, allow: [], lookup }), (error: unknown) => {
      assert.ok(error instanceof UrlRefused);
      assert.match(error.message, /private or reserved/);
      return true;
    });
  });
}

const malformed = [
  'http://example.com/',
  'ftp://example.com/',
  'file:///etc/passwd',
  '/etc/passwd',
  'ssh://git@example.com/x',
  'git@example.com:x/y',
  'ext::sh -c id',
  '--upload-pack=touch /tmp/x',
  '-oProxyCommand=x',
  'https://user:pw@example.com/',
  'https://user@example.com/',
  'https://exa mple.com/',
  'https://example.com\\@127.0.0.1/',
  'https://example.com/\nx',
  ' https://example.com/',
  'https://',
  'javascript:alert(1)',
  `https://example.com/${'a'.repeat(2100)}`,
  'https://exa\u0000mple.com/',
];

for (const url of malformed) {
  test(`${JSON.stringify(url.slice(0, 60))} is refused for its form`, async () => {
    await assert.rejects(checkPublicUrl(url, { protocols, allow: [], lookup }), UrlRefused);
  });
}

for (const addresses of [
  ['127.0.0.1'],
  ['::1'],
  ['93.184.215.14', '10.0.0.1'],
  ['fd00::1'],
  ['nonsense'],
  [],
]) {
  test(`a name that resolves to ${JSON.stringify(addresses)} is refused, and the addresses are not told`, async () => {
    const options = { protocols, allow: [], lookup: async () => addresses };
    await assert.rejects(checkPublicUrl('https://inside.example.com/', options), (error: unknown) => {
      assert.ok(error instanceof UrlRefused);
      for (const address of addresses) assert.ok(!error.message.includes(address));
      return true;
    });
  });
}

test('a name is resolved once, and the address to dial is the one that was checked', async () => {
  const answers = [['93.184.215.14'], ['127.0.0.1']];
  const options = { protocols, allow: [], lookup: async () => answers.shift()! };
  const checked = await checkPublicUrl('https://rebind.example.com./x', options);
  assert.deepEqual(checked.addresses, ['93.184.215.14']);
  assert.equal(checked.url.href, 'https://rebind.example.com/x');
  assert.equal(answers.length, 1);
});

test('public addresses pass in every form, and allowed ranges are opened, also under their IPv6 forms', () => {
  for (const text of [
    '8.8.8.8',
    '0x8.8.8.8',
    '134744072',
    '2606:4700::1111',
    '::ffff:8.8.8.8',
    '64:ff9b::8.8.8.8',
    '2002:808:808::1',
  ]) {
    assert.ok(isPublicAddress(parseAddress(text)!), text);
  }
  const allow = [parseNetwork('127.0.0.0/8')!, parseNetwork('fd00::/8')!];
  for (const text of ['127.0.0.1', '::ffff:127.0.0.1', 'fd12::1'])
    assert.ok(isPublicAddress(parseAddress(text)!, allow), text);
  for (const text of ['10.0.0.1', '::1', 'fe80::1'])
    assert.ok(!isPublicAddress(parseAddress(text)!, allow), text);
});

test('what is no address or range is not taken for one', () => {
  for (const text of [
    '',
    '.',
    '256.0.0.1',
    '1.2.3.4.5',
    '1..2',
    '08.1.1.1',
    'example.com',
    '4294967296',
    ':',
    ':::',
    '1::2::3',
    '1:2:3',
    '::12345',
    '::1.2.3',
  ]) {
    assert.equal(parseAddress(text), null, text);
  }
  for (const text of ['10.0.0.0', '10.0.0.0/33', '::/129', '10.0.0.0/8/8', 'x/8', '10.0.0.0/-1']) {
    assert.equal(parseNetwork(text), null, text);
  }
});
