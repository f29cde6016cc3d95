import { createHash, randomBytes, sign, type KeyObject } from 'node:crypto';
import { bits, integer, objectId, octets, retagged, sequence, set, time, utf8, wrapped, yes } from './der.ts';

const ECDSA_WITH_SHA256 = sequence(objectId('1.2.840.10045.4.3.2'));
const COMMON_NAME = objectId('2.5.4.3');
const SERVER_AUTHENTICATION = objectId('1.3.6.1.5.5.7.3.1');

/** X.509 version 3 (RFC 5280), ECDSA on P-256 with SHA-256. */
export interface CertificateInput {
  subject: string;
  issuer: string;
  publicKey: KeyObject;
  signWith: KeyObject;
  notBefore: Date;
  notAfter: Date;
  extensions: Buffer[];
}

/** PEM. */
export function makeCertificate(input: CertificateInput): string {
  const serial = randomBytes(16);
  // Positive, and never with superfluous zeros in front (RFC 5280, section 4.1.2.2).
  serial[0] = (serial[0]! & 0x3f) | 0x40;
  const content = sequence(
    wrapped(0, integer(2)),
    integer(...serial),
    ECDSA_WITH_SHA256,
    nameOf(input.issuer),
    sequence(time(input.notBefore), time(input.notAfter)),
    nameOf(input.subject),
    spki(input.publicKey),
    wrapped(3, sequence(...input.extensions)),
  );
  const signature = sign('sha256', content, input.signWith);
  const der = sequence(content, ECDSA_WITH_SHA256, bits(signature));
  const lines = der.toString('base64').match(/.{1,64}/g)!;
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/** Of an authority that signs hosts below `domains` only, and no further authority. */
export function authorityExtensions(publicKey: KeyObject, domains: string[]): Buffer[] {
  const permitted = domains.map((domain) => sequence(retagged(2, Buffer.from(domain))));
  // A list of names says nothing of addresses: those are closed as a whole, in both sizes.
  const excluded = [8, 32].map((size) => sequence(retagged(7, Buffer.alloc(size))));
  return [
    extension('2.5.29.19', sequence(yes, integer(0)), true),
    extension('2.5.29.15', bits(Buffer.from([0x04]), 2), true),
    extension('2.5.29.37', sequence(SERVER_AUTHENTICATION)),
    extension('2.5.29.14', octets(keyId(publicKey))),
    extension('2.5.29.30', sequence(wrapped(0, ...permitted), wrapped(1, ...excluded)), true),
  ];
}

export function hostExtensions(host: string, authorityKey: KeyObject): Buffer[] {
  return [
    extension('2.5.29.19', sequence(), true),
    extension('2.5.29.15', bits(Buffer.from([0x80]), 7), true),
    extension('2.5.29.37', sequence(SERVER_AUTHENTICATION)),
    extension('2.5.29.35', sequence(retagged(0, keyId(authorityKey)))),
    extension('2.5.29.17', sequence(retagged(2, Buffer.from(host)))),
  ];
}

function extension(id: string, value: Buffer, isCritical = false): Buffer {
  return sequence(objectId(id), ...(isCritical ? [yes] : []), octets(value));
}

function nameOf(text: string): Buffer {
  return sequence(set(sequence(COMMON_NAME, utf8(text))));
}

function spki(key: KeyObject): Buffer {
  return key.export({ type: 'spki', format: 'der' });
}

/** Any hash of the key will do (RFC 7093, section 2). */
function keyId(key: KeyObject): Buffer {
  return createHash('sha256').update(spki(key)).digest().subarray(0, 20);
}
