import { invalid } from '../domain/errors.ts';
import { isId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import { pageOf } from '../domain/paging.ts';
import type { Cursors, Page, PageQuery } from '../domain/paging.ts';

/**
 * A page of a list that is ordered by id, newest first. The position is the last id shown, not an offset: rows that
 * are inserted or removed meanwhile move nothing. `list` names the list and its parent.
 */
export async function pageById<T extends { id: string }>(
  cursors: Cursors,
  list: string,
  query: PageQuery,
  read: (at: { before: string | null; limit: number }) => Promise<T[] | { rows: T[]; isCut: boolean }>,
): Promise<Page<T>> {
  if (!Number.isInteger(query.limit) || query.limit < 1 || query.limit > limits.pageMax) {
    throw invalid('limit', `must be a whole number from 1 to ${limits.pageMax}.`);
  }
  const before = query.cursor === null ? null : cursors.decode(list, query.cursor);
  if (before !== null && !isId(before)) throw invalid('cursor', 'is not one of this list.');
  const found = await read({ before, limit: query.limit + 1 });
  const { rows, isCut } = Array.isArray(found) ? { rows: found, isCut: false } : found;
  return pageOf(rows, query, (row) => row.id, cursors, list, isCut);
}
