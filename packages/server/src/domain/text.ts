import { invalid } from './errors.ts';
import { limits, modelPattern } from './limits.ts';

// Control characters would let a name forge lines in terminals and logs.
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** Refuses what PostgreSQL's text cannot hold (U+0000) and what is no Unicode text (a lone surrogate). */
export function requireStorable(path: string, text: string): void {
  if (text.includes('\u0000')) throw invalid(path, 'must not contain the character U+0000.');
  if (!text.isWellFormed())
    throw invalid(path, 'must be well-formed Unicode; it holds half of a surrogate pair.');
}

/** A name without surrounding white space, 1 to 100 characters, no control characters. */
export function readName(path: string, text: string): string {
  requireStorable(path, text);
  const name = text.trim();
  if (name === '' || countChars(name) > limits.nameChars) {
    throw invalid(path, `must have 1 to ${limits.nameChars} characters that are not all spaces.`);
  }
  if (CONTROL.test(name)) throw invalid(path, 'must not contain control characters or line breaks.');
  return name;
}

export function readDescription(path: string, text: string): string {
  requireStorable(path, text);
  if (countChars(text) > limits.descriptionChars) {
    throw invalid(path, `must have at most ${limits.descriptionChars} characters.`);
  }
  return text;
}

/** A message's text, 1 to 200,000 characters. */
export function requireContent(path: string, text: string): void {
  requireStorable(path, text);
  // Counting is left out where it cannot matter: there are never more characters than code units.
  const isTooLong = text.length > limits.contentChars && countChars(text) > limits.contentChars;
  if (text === '' || isTooLong) throw invalid(path, `must have 1 to ${limits.contentChars} characters.`);
}

export function readModel(path: string, text: string): string {
  requireStorable(path, text);
  if (!modelPattern.test(text)) {
    throw invalid(path, 'must be <provider>/<model_name>, such as anthropic/claude-sonnet-4-5.');
  }
  return text;
}

/** Characters as JSON Schema counts them: code points, of which the second half of a surrogate pair is none. */
function countChars(text: string): number {
  let count = text.length;
  for (let i = 0; i < text.length; i += 1) if ((text.charCodeAt(i) & 0xfc00) === 0xdc00) count -= 1;
  return count;
}
