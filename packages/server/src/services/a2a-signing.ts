import { createHash, createPrivateKey, generateKeyPairSync, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { Box } from '../domain/box.ts';
import { signingKeyContext } from '../domain/seal-context.ts';
import type { A2aSigningStore, SigningKeyRow } from '../store/a2a-signing.ts';
import type { Database } from '../store/database.ts';
import type { A2aService } from './a2a-api.ts';

export interface CardSigningDependencies {
  db: Database;
  signingKeys: A2aSigningStore;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
}

/** Signatures of agent cards by a key of the installation, which is made when it is first needed. */
export function createCardSigning(
  deps: CardSigningDependencies,
): Pick<A2aService, 'signCard' | 'publicKeys'> {
  const { db, signingKeys, box } = deps;
  let current: Promise<{ id: string; key: KeyObject }> | null = null;

  async function load(): Promise<{ id: string; key: KeyObject }> {
    const [found] = await signingKeys.list();
    const row = found ?? (await make());
    const pem = box.open(row, signingKeyContext(row.id)).toString();
    return { id: row.id, key: createPrivateKey(pem) };
  }

  function make(): Promise<SigningKeyRow> {
    return db.tx(async () => {
      await signingKeys.lock();
      const [made] = await signingKeys.list();
      if (made) return made;
      await deps.holdEncryptionKey();
      const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const jwk = publicKey.export({ format: 'jwk' });
      const id = thumbprint(jwk);
      const pem = privateKey.export({ format: 'pem', type: 'pkcs8' }) as string;
      const row: SigningKeyRow = {
        id,
        publicJwk: { ...jwk, kid: id, alg: 'ES256', use: 'sig' },
        ...box.seal(Buffer.from(pem), signingKeyContext(id)),
      };
      await signingKeys.insert(row);
      return row;
    });
  }

  function signer(): Promise<{ id: string; key: KeyObject }> {
    current ??= load().catch((error: unknown) => {
      current = null;
      throw error;
    });
    return current;
  }

  return {
    async signCard(payload, header) {
      const { id, key } = await signer();
      const protectedHeader = base64url(JSON.stringify({ alg: 'ES256', kid: id, ...header }));
      const input = Buffer.from(`${protectedHeader}.${base64url(payload)}`);
      const signature = sign('sha256', input, { key, dsaEncoding: 'ieee-p1363' }).toString('base64url');
      return { protected: protectedHeader, signature };
    },

    async publicKeys() {
      await signer();
      return (await signingKeys.list()).map(({ publicJwk }) => publicJwk);
    },
  };
}

const base64url = (text: string): string => Buffer.from(text).toString('base64url');

/** RFC 7638, section 3. */
function thumbprint({ crv, kty, x, y }: { crv?: string; kty?: string; x?: string; y?: string }): string {
  return createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url');
}
