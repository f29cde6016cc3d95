import { shapeOf } from '../domain/json-shape.ts';
import { atOnce } from '../domain/slices.ts';

/** A key set or a configuration as JSON; null when whoever answered sent something else, or more than any of them has. */
export const parsedDocument = (text: string): unknown => readJson(text)?.value ?? null;

/** What a text is as JSON; null when it is none, or has more names and values than any has reason to. */
export function readJson(text: string): { value: unknown } | null {
  if (atOnce(shapeOf(text)).hasTooMany) return null;
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return null;
  }
}
