import { DomainError } from './errors.ts';

/** Texts between the quotes of entity tags; `*` = whatever is there. */
export type EntityTags = '*' | string[];

/** What a request asks of the present state (RFC 9110, sections 13.1.1 and 13.1.2); null = nothing. */
export interface Preconditions {
  /** `If-Match`, without weak tags, which match nothing. */
  match: EntityTags | null;
  /** `If-None-Match`. */
  noneMatch: EntityTags | null;
}

export const noPreconditions: Preconditions = { match: null, noneMatch: null };

export const preconditionFailed = () =>
  new DomainError(
    'precondition_failed',
    'It is not, or no longer, what If-Match or If-None-Match says; look at it again, then decide.',
  );

/** `present` null: there is nothing; its `tag` null: it has no tag, as a folder. Throws `precondition_failed`. */
export function requirePreconditions(
  { match, noneMatch }: Preconditions,
  present: { tag: string | null } | null,
): void {
  if (match !== null && !isAmong(match, present)) throw preconditionFailed();
  if (noneMatch !== null && isAmong(noneMatch, present)) throw preconditionFailed();
}

function isAmong(tags: EntityTags, present: { tag: string | null } | null): boolean {
  if (present === null) return false;
  return tags === '*' || (present.tag !== null && tags.includes(present.tag));
}
