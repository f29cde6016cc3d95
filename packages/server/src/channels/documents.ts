import { shapeOf } from '../domain/json-shape.ts';
import { atOnce } from '../domain/slices.ts';

/** A key set or a configuration as JSON; null when whoever answered sent something else, or more than any of them has. */
export function parsedDocument(text: string): unknown {
  if (atOnce(shapeOf(text)).hasTooMany) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
