import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, randomBytes, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createAuthority } from '../../src/egress/broker/authority.ts';
import { authorityExtensions, hostExtensions, makeCertificate } from '../../src/egress/broker/certificate.ts';
import { Placeholders } from '../../src/egress/broker/placeholders.ts';
import { brokerWorld } from '../support/broker-world.ts';

const DAY_MS = 86_400_000;

test('an authority is valid for days, signs for its domains only, and no two sandboxes have the same', () => {
  const domains = ['api.example.com', 'example.org'];
  const one = createAuthority({ seed: randomBytes(32), domains });
  const certificate = new X509Certificate(one.certificate);
  assert.ok(certificate.ca);
  assert.ok(certificate.verify(certificate.publicKey));
  const lifeMs = Date.parse(certificate.validTo) - Date.parse(certificate.validFrom);
  assert.ok(lifeMs <= 31 * DAY_MS, certificate.validTo);
  const text = openssl(['x509', '-noout', '-text'], one.certificate);
  assert.match(
    text,
    /Name Constraints: critical\s+Permitted:\s+DNS:api\.example\.com\s+DNS:example\.org\s+Excluded:\s+IP:0\.0\.0\.0\/0\.0\.0\.0/,
  );
  assert.match(text, /Basic Constraints: critical\s+CA:TRUE, pathlen:0/);
  assert.match(text, /Key Usage: critical\s+Certificate Sign\n/);
  const two = new X509Certificate(createAuthority({ seed: randomBytes(32), domains }).certificate);
  assert.notEqual(two.fingerprint256, certificate.fingerprint256);
  assert.notEqual(two.subject, certificate.subject);
  assert.equal(certificate.verify(two.publicKey), false);
});

test('the same seed gives the same authority and placeholders after a restart of the service', () => {
  const seed = randomBytes(32);
  const [one, two] = [0, 1].map(
    () => new X509Certificate(createAuthority({ seed, domains: ['a.example'] }).certificate),
  );
  assert.ok(one!.verify(two!.publicKey));
  assert.equal(one!.subject, two!.subject);
  const [a, b] = [0, 1].map(() => new Placeholders(seed, ['A', 'B']));
  assert.equal(a!.textOf('A'), b!.textOf('A'));
  assert.match(a!.textOf('A'), /^berth_ph_[0-9a-f]{40}$/);
  assert.notEqual(a!.textOf('A'), a!.textOf('B'));
  assert.notEqual(a!.textOf('A'), new Placeholders(randomBytes(32), ['A']).textOf('A'));
});

test('what the authority would sign for another domain, OpenSSL does not believe', () => {
  const seed = randomBytes(32);
  const folder = mkdtempSync(join(tmpdir(), 'berth-authority-'));
  try {
    const { certificate, key } = signerOf(seed);
    const leaf = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const verify = (host: string): string => {
      const pem = makeCertificate({
        subject: 'host',
        issuer: new X509Certificate(certificate).subject.replace('CN=', ''),
        publicKey: leaf.publicKey,
        signWith: key.privateKey,
        notBefore: new Date(Date.now() - 1000),
        notAfter: new Date(Date.now() + DAY_MS),
        extensions: hostExtensions(host, key.publicKey),
      });
      const [ca, own] = [join(folder, 'ca.pem'), join(folder, 'own.pem')];
      writeFileSync(ca, certificate);
      writeFileSync(own, pem);
      const done = spawnSync('openssl', [
        'verify',
        '-x509_strict',
        '-CAfile',
        ca,
        '-verify_hostname',
        host,
        own,
      ]);
      return `${done.stdout.toString()}${done.stderr.toString()}`;
    };
    assert.match(verify('api.example.com'), /own\.pem: OK/);
    assert.match(verify('evil.example.net'), /permitted subtree violation/);
    assert.match(verify('example.com'), /permitted subtree violation/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('names without end below a wildcard cost a bounded number of certificates', () => {
  const authority = createAuthority({ seed: randomBytes(32), domains: ['example.org'] });
  const first = authority.contextFor('0.example.org');
  assert.equal(authority.contextFor('0.example.org'), first);
  for (let at = 1; at <= 80; at += 1) authority.contextFor(`${at}.example.org`);
  assert.notEqual(authority.contextFor('0.example.org'), first);
});

test('a host is shown a certificate of its own name that ends within a day or so, from the authority of this sandbox', async () => {
  const world = await brokerWorld([{ key: 'T', hosts: ['*.example.com'], value: Buffer.from('some value') }]);
  try {
    const socket = world.tls('api.example.com');
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    const shown = socket.getPeerCertificate();
    assert.equal(shown.subjectaltname, 'DNS:api.example.com');
    assert.ok(Date.parse(shown.valid_to) - Date.now() <= DAY_MS + 60_000);
    assert.equal(socket.getProtocol(), 'TLSv1.3');
    assert.equal(socket.alpnProtocol, 'http/1.1');
    socket.destroy();
  } finally {
    await world.close();
  }
});

/** The key of an authority is nowhere to be read, so the test makes one in the same way, with its own certificate. */
function signerOf(seed: Buffer) {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const real = new X509Certificate(createAuthority({ seed, domains: ['api.example.com'] }).certificate);
  const issuer = real.subject.replace('CN=', '');
  const certificate = makeCertificate({
    subject: issuer,
    issuer,
    publicKey: key.publicKey,
    signWith: key.privateKey,
    notBefore: new Date(Date.now() - 1000),
    notAfter: new Date(Date.now() + DAY_MS),
    extensions: authorityExtensions(createPublicKey(key.privateKey), ['api.example.com']),
  });
  return { certificate, key };
}

function openssl(args: string[], input: string): string {
  const done = spawnSync('openssl', args, { input });
  assert.equal(done.status, 0, done.stderr.toString());
  return done.stdout.toString();
}
