import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';

/** A value under a data key of its own, and that data key under the key-encryption key `kekId`. */
export interface Sealed {
  /** 12 bytes of nonce, the ciphertext, 16 bytes of tag. */
  sealed: Buffer;
  wrappedKey: Buffer;
  kekId: string;
}

/** Envelope encryption, AES-256-GCM (NIST SP 800-38D). `context` is authenticated: a row cannot be moved elsewhere. */
export interface Box {
  readonly kekId: string;
  seal(plaintext: Buffer, context: string): Sealed;
  /** Throws when a bit was changed, the context is another one, or the key-encryption key is unknown. */
  open(value: Sealed, context: string): Buffer;
  /** The same data key under the current key-encryption key; the sealed value itself stays as it is. */
  rewrap(value: Sealed, context: string): Sealed;
}

/** `keys[0]` is the current key-encryption key; the others only open what they once sealed. 32 bytes each. */
export function createBox(keys: Buffer[]): Box {
  const byId = new Map<string, Buffer>();
  for (const key of keys) {
    if (key.length !== 32) throw new Error('A key-encryption key must have 32 bytes.');
    byId.set(idOfKey(key), key);
  }
  const current = keys[0];
  if (!current) throw new Error('At least one key-encryption key is needed.');
  const kekId = idOfKey(current);

  function unwrap(value: Sealed, context: string): Buffer {
    const kek = byId.get(value.kekId);
    if (!kek) throw new Error(`The key-encryption key ${value.kekId} is not configured.`);
    return decrypt(kek, value.wrappedKey, `key:${context}`);
  }

  return {
    kekId,
    seal(plaintext, context) {
      const dataKey = randomBytes(32);
      return {
        sealed: encrypt(dataKey, plaintext, context),
        wrappedKey: encrypt(current, dataKey, `key:${context}`),
        kekId,
      };
    },
    open: (value, context) => decrypt(unwrap(value, context), value.sealed, context),
    rewrap: (value, context) => ({
      sealed: value.sealed,
      wrappedKey: encrypt(current, unwrap(value, context), `key:${context}`),
      kekId,
    }),
  };
}

/** Names a key-encryption key without telling anything of it. */
export function idOfKey(key: Buffer): string {
  return createHash('sha256').update('berth-kek:').update(key).digest('hex').slice(0, 16);
}

function encrypt(key: Buffer, plaintext: Buffer, context: string): Buffer {
  const nonce = randomBytes(12);
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context));
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
}

function decrypt(key: Buffer, sealed: Buffer, context: string): Buffer {
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12), { authTagLength: 16 })
    .setAAD(Buffer.from(context))
    .setAuthTag(sealed.subarray(-16));
  return Buffer.concat([decipher.update(sealed.subarray(12, -16)), decipher.final()]);
}
