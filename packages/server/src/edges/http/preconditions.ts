import type { EntityTags, Preconditions } from '../../domain/preconditions.ts';
import { invalidRequest } from './validate.ts';

/** RFC 9110, section 8.8.3, with what its lists allow around commas. */
const tagPattern = /\s*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)|\s*,/gy;

/** Null when the text is no list of tags. */
function readTags(text: string, isStrong: boolean): EntityTags | null {
  if (text.trim() === '*') return '*';
  const tags: string[] = [];
  let end = 0;
  for (const { 0: part, 1: weak, 2: tag } of text.matchAll(tagPattern)) {
    end += part.length;
    if (tag !== undefined && !(weak && isStrong)) tags.push(tag);
  }
  return end === text.length && text.trim() !== '' ? tags : null;
}

function requireTags(name: string, text: string | undefined, isStrong: boolean): EntityTags | null {
  if (text === undefined) return null;
  const tags = readTags(text, isStrong);
  if (tags) return tags;
  throw invalidRequest([
    { path: name, message: 'must be "*", or tags in double quotes as an ETag gave them' },
  ]);
}

/** Of a request that changes something. Throws `invalid_request`: one that is not understood must not be passed over. */
export function readPreconditions(header: (lowerName: string) => string | undefined): Preconditions {
  return {
    match: readMatch(header),
    noneMatch: requireTags('If-None-Match', header('if-none-match'), false),
  };
}

/** `If-Match` compares strongly: weak tags are left out. Throws `invalid_request`. */
export function readMatch(header: (lowerName: string) => string | undefined): EntityTags | null {
  return requireTags('If-Match', header('if-match'), true);
}
