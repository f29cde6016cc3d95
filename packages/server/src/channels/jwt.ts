import { createPublicKey, createSign, createVerify, type KeyObject } from 'node:crypto';
import { at, isObject, listAt, textAt, type Json } from './body.ts';

export interface Token {
  header: Json;
  claims: Json;
  signed: string;
  signature: Buffer;
}

const shape = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Takes a JSON Web Token apart (RFC 7519, compact JWS of RFC 7515) without believing any of it. */
export function readToken(text: string): Token | null {
  if (text.length > 16_384 || !shape.test(text)) return null;
  const [head, body, signature] = text.split('.') as [string, string, string];
  const header = readPart(head);
  const claims = readPart(body);
  if (!header || !claims) return null;
  return { header, claims, signed: `${head}.${body}`, signature: Buffer.from(signature, 'base64url') };
}

function readPart(part: string): Json | null {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString());
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** RS256 and nothing else: the token never chooses how it is checked (RFC 8725, section 3.1). */
export function isSignedBy(token: Token, key: KeyObject): boolean {
  if (token.header['alg'] !== 'RS256' || key.asymmetricKeyType !== 'rsa') return false;
  return createVerify('RSA-SHA256').update(token.signed).verify(key, token.signature);
}

/** The key of a JSON Web Key Set that the token names; null: it is none of ours; `unnamed`: the set has no such name. */
export function keyOfSet(set: unknown, token: Token): KeyObject | null | 'unnamed' {
  const keyId = textAt(token.header, 'kid');
  if (keyId === null) return null;
  const found = listAt(set, 'keys').find((key) => textAt(key, 'kid') === keyId);
  if (!isObject(found)) return 'unnamed';
  if (found['kty'] !== 'RSA') return null;
  try {
    return createPublicKey({ key: found as never, format: 'jwk' });
  } catch {
    return null;
  }
}

/** Whether issuer, audience and times hold, with five minutes for clocks that differ. */
export function claimsHold(
  token: Token,
  expected: { issuers: string[]; audience: string },
  nowMs: number,
): 'yes' | 'stale' | 'no' {
  const issuer = textAt(token.claims, 'iss');
  const audience = at(token.claims, 'aud');
  const audiences = Array.isArray(audience) ? audience : [audience];
  if (issuer === null || !expected.issuers.includes(issuer) || !audiences.includes(expected.audience))
    return 'no';
  const expires = at(token.claims, 'exp');
  const notBefore = at(token.claims, 'nbf') ?? 0;
  if (typeof expires !== 'number' || typeof notBefore !== 'number') return 'no';
  const now = nowMs / 1000;
  return now > expires + 300 || now < notBefore - 300 ? 'stale' : 'yes';
}

/** A token of our own, signed with RS256. Throws when the key is no RSA private key in PEM. */
export function signToken(claims: Json, privateKeyPem: string): string {
  const part = (value: Json) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'RS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createSign('RSA-SHA256').update(signed).sign(privateKeyPem, 'base64url')}`;
}
