import { createHmac, timingSafeEqual } from 'node:crypto';
import { DomainError } from './errors.ts';

export interface PageQuery {
  /** 1 to 100. */
  limit: number;
  cursor: string | null;
}

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** Makes and reads opaque cursors, signed and bound to one list (`list` names it with its parent's id). */
export interface Cursors {
  encode(list: string, position: string): string;
  /** Throws `invalid_cursor`. */
  decode(list: string, cursor: string): string;
}

export function createCursors(secret: Buffer): Cursors {
  const sign = (list: string, position: string) =>
    createHmac('sha256', secret).update(`${list}\n${position}`).digest().subarray(0, 12);
  return {
    encode: (list, position) =>
      Buffer.concat([sign(list, position), Buffer.from(position)]).toString('base64url'),
    decode(list, cursor) {
      const bytes = Buffer.from(cursor, 'base64url');
      const position = bytes.subarray(12).toString();
      const valid =
        bytes.length > 12 &&
        bytes.toString('base64url') === cursor &&
        timingSafeEqual(bytes.subarray(0, 12), sign(list, position));
      if (!valid) {
        throw new DomainError(
          'invalid_cursor',
          'The cursor is not one of this list; begin again without it.',
          {
            details: [{ path: 'cursor', message: 'Pass the nextCursor of the previous page, unchanged.' }],
          },
        );
      }
      return position;
    },
  };
}

/** A page out of `limit + 1` rows, newest first. `isCut`: there are more, although fewer rows came. */
export function pageOf<T>(
  rows: T[],
  query: PageQuery,
  position: (row: T) => string,
  cursors: Cursors,
  list: string,
  isCut = false,
): Page<T> {
  const items = rows.slice(0, query.limit);
  const last = items.at(-1);
  return {
    items,
    nextCursor: (isCut || rows.length > query.limit) && last ? cursors.encode(list, position(last)) : null,
  };
}
