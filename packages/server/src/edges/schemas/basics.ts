import { z } from 'zod';
import { limits } from '../../domain/limits.ts';

/** Schemas that OpenAPI knows by name. */
export const models = z.registry<{ id: string; description?: string }>();

/** Names a schema in the OpenAPI document. */
export function model<S extends z.ZodType>(id: string, schema: S, description?: string): S {
  models.add(schema, description === undefined ? { id } : { id, description });
  return schema;
}

export const uuid = (description: string) => z.string().meta({ format: 'uuid', description });
export const time = (description: string) =>
  z.string().meta({ format: 'date-time', description: `${description} ISO 8601, UTC, with milliseconds.` });
export const money = (description: string) =>
  z
    .string()
    .meta({ pattern: '^-?\\d+\\.\\d{6}$', description: `${description} US dollars as a decimal text.` });

/** A text of `min` to `max` characters, counted as JSON Schema does: code points, not UTF-16 units. */
export function text(min: number, max: number, description: string) {
  return z
    .string()
    .superRefine((value, context) => {
      const chars = value.length > max || value.length < min * 2 ? codePoints(value) : value.length;
      if (chars < min)
        context.addIssue({ code: 'too_small', origin: 'string', minimum: min, inclusive: true });
      if (chars > max) context.addIssue({ code: 'too_big', origin: 'string', maximum: max, inclusive: true });
    })
    .meta({ minLength: min, maxLength: max, description });
}

function codePoints(value: string): number {
  return value.replace(/[\uD800-\uDBFF]/g, '').length;
}

export const name = () => text(1, limits.nameChars, `1 to ${limits.nameChars} characters.`);

/** `?limit=` and `?cursor=` of every list. */
export const pageFields = {
  limit: z
    .string()
    .optional()
    .transform((value, context) => {
      if (value === undefined) return limits.pageDefault;
      const limit = /^\d{1,3}$/.test(value) ? Number(value) : 0;
      if (limit >= 1 && limit <= limits.pageMax) return limit;
      context.addIssue({ code: 'custom', message: `must be a whole number from 1 to ${limits.pageMax}` });
      return z.NEVER;
    })
    .meta({
      type: 'integer',
      minimum: 1,
      maximum: limits.pageMax,
      default: limits.pageDefault,
      description: 'How many entries a page has at most.',
    }),
  cursor: z
    .string()
    .max(500)
    .optional()
    .transform((value) => value ?? null)
    .meta({ description: "The previous page's `nextCursor`." }),
};

export const pageQuery = z.strictObject(pageFields);

export const nextCursor = z
  .string()
  .nullable()
  .describe('Pass it as `cursor` to get the next page; null at the end of the list.');
