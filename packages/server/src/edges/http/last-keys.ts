import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { parseKeyValue } from '../../domain/api-key-value.ts';
import { bearerToken } from './bearer.ts';

/** `Bearer `, and a key as they all are. */
const FIELD_BYTES = 65;

interface LastKey {
  field: Buffer;
  hash: string;
}

export interface LastKeys {
  /** Hash of the key that a request brings; null for what cannot be a key. */
  hashOf(request: IncomingMessage): string | null;
  /** The key of this request is a good one: the next with the same need not be taken apart. */
  keep(request: IncomingMessage, hash: string): void;
}

/**
 * A client that keeps its connection brings the same key with each request, and hashing it is a twentieth of a short
 * request. So the field is held as long as the connection, and only what this connection itself sends is compared with it,
 * in constant time, since a proxy may send the requests of many clients by one. What its hash is good for is looked up
 * with each request as ever.
 */
export function createLastKeys(): LastKeys {
  const last = new WeakMap<Socket, LastKey>();
  const given = Buffer.alloc(FIELD_BYTES);

  return {
    hashOf(request) {
      const field = request.headers.authorization;
      if (field === undefined) return null;
      const kept = field.length === FIELD_BYTES ? last.get(request.socket) : undefined;
      if (kept) {
        given.write(field, 'latin1');
        if (timingSafeEqual(given, kept.field)) return kept.hash;
      }
      const token = tokenIn(field);
      return token === null ? null : (parseKeyValue(token)?.hash ?? null);
    },

    keep({ headers: { authorization: field = '' }, socket }, hash) {
      if (field.length !== FIELD_BYTES) return;
      const kept = last.get(socket);
      if (kept?.hash === hash) return;
      if (!kept) return void last.set(socket, { field: Buffer.from(field, 'latin1'), hash });
      kept.field.write(field, 'latin1');
      kept.hash = hash;
    },
  };
}

function tokenIn(field: string): string | null {
  try {
    return bearerToken(field);
  } catch {
    return null;
  }
}
