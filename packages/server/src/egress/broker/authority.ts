import {
  createECDH,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
} from 'node:crypto';
import { createSecureContext, type SecureContext } from 'node:tls';
import { authorityExtensions, hostExtensions, makeCertificate } from './certificate.ts';

/** The certificate authority of one sandbox. Its private key is in this process's memory and nowhere else. */
export interface Authority {
  /** PEM; what the sandbox trusts. */
  certificate: string;
  /** What a connection to this host is answered with. */
  contextFor(host: string): SecureContext;
}

export interface AuthorityOptions {
  /** 32 random bytes of this start. The key comes from them, so that a restarted service answers for the sandbox too. */
  seed: Buffer;
  /** Domains below which it may sign. */
  domains: string[];
  now?: () => number;
}

const HOUR_MS = 3_600_000;
/** Longer than any sandbox lives without a break. */
const AUTHORITY_MS = 30 * 24 * HOUR_MS;
const HOST_MS = 24 * HOUR_MS;
/** A wildcard lets a sandbox ask for names without end. */
const MAX_CONTEXTS = 64;
const MAX_TRIES = 100;

export function createAuthority({ seed, domains, now = Date.now }: AuthorityOptions): Authority {
  const privateKey = keyFrom(seed);
  const publicKey = createPublicKey(privateKey);
  const issuer = `Berth sandbox ${Buffer.from(hkdfSync('sha256', seed, '', 'authority name', 8)).toString('hex')}`;
  // One key for all hosts: they end in the same process, and making one costs more than signing.
  let hostKeys: { publicKey: KeyObject; pem: string } | null = null;
  const contexts = new Map<string, { context: SecureContext; until: number }>();

  function mint(host: string): SecureContext {
    if (!hostKeys) {
      const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      hostKeys = {
        publicKey: pair.publicKey,
        pem: pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      };
    }
    const cert = makeCertificate({
      subject: 'Berth brokered host',
      issuer,
      publicKey: hostKeys.publicKey,
      signWith: privateKey,
      notBefore: new Date(now() - HOUR_MS),
      notAfter: new Date(now() + HOST_MS),
      extensions: hostExtensions(host, publicKey),
    });
    return createSecureContext({ key: hostKeys.pem, cert, minVersion: 'TLSv1.2' });
  }

  return {
    certificate: makeCertificate({
      subject: issuer,
      issuer,
      publicKey,
      signWith: privateKey,
      notBefore: new Date(now() - HOUR_MS),
      notAfter: new Date(now() + AUTHORITY_MS),
      extensions: authorityExtensions(publicKey, domains),
    }),
    contextFor(host) {
      const found = contexts.get(host);
      contexts.delete(host);
      const isFresh = found !== undefined && found.until > now();
      const entry = isFresh ? found : { context: mint(host), until: now() + HOST_MS / 2 };
      contexts.set(host, entry);
      // The map keeps the order of use, so its first is the one that was not used for longest.
      if (contexts.size > MAX_CONTEXTS) contexts.delete(contexts.keys().next().value!);
      return entry.context;
    },
  };
}

/** A private key on P-256 from the seed; one in four thousand million candidates is out of range, and the next is taken. */
function keyFrom(seed: Buffer): KeyObject {
  const curve = createECDH('prime256v1');
  for (let attempt = 0; attempt < MAX_TRIES; attempt += 1) {
    const secret = Buffer.from(hkdfSync('sha256', seed, '', `authority key ${attempt}`, 32));
    try {
      curve.setPrivateKey(secret);
    } catch {
      continue;
    }
    const point = curve.getPublicKey();
    const part = (from: number) => point.subarray(from, from + 32).toString('base64url');
    const jwk = { kty: 'EC', crv: 'P-256', d: secret.toString('base64url'), x: part(1), y: part(33) };
    return createPrivateKey({ key: jwk, format: 'jwk' });
  }
  throw new Error('No key could be made from the seed.');
}
