import type { z } from 'zod';
import type { ErrorDetail } from '../../domain/errors.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { tooManyEntries } from './entries.ts';

/** Parses or throws `invalid_request`, which names the first hundred wrong fields and repeats none of the values sent. */
export function validate<S extends z.ZodType>(
  schema: S,
  value: unknown,
  root: 'body' | 'query',
): z.output<S> {
  const many = tooManyEntries(schema, value);
  if (many !== null) throw invalidRequest([many]);
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { issues } = result.error;
  const told = issues.slice(0, limits.errorDetails);
  throw invalidRequest(
    told.flatMap((issue) => toDetails(issue, root)),
    issues.length - told.length,
  );
}

/** `untold`: so many are wrong beside them. */
export function invalidRequest(details: ErrorDetail[], untold = 0): DomainError {
  const [first] = details;
  const others = details.length - 1 + untold;
  const more = others > 0 ? ` (and ${others} more, see details)` : '';
  return new DomainError(
    'invalid_request',
    first ? `${first.path}: ${first.message}${more}` : 'Invalid request.',
    {
      details,
    },
  );
}

function toDetails(issue: z.core.$ZodIssue, root: string): ErrorDetail[] {
  const path = issue.path.map(String).join('.');
  if (issue.code === 'unrecognized_keys') {
    const kind = root === 'query' ? 'unknown query parameter' : 'unknown field';
    return issue.keys.slice(0, 20).map((key) => ({
      path: (path ? `${path}.${key}` : key).slice(0, 200),
      message: kind,
    }));
  }
  return [{ path: path.slice(0, 200) || root, message: describe(issue) }];
}

/** Plain words for zod's issue codes. `input` is never read: it may be a secret. */
function describe(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.message.endsWith('received undefined') ? 'required' : `must be ${article(issue.expected)}`;
    case 'too_small':
      return issue.origin === 'string'
        ? `must have at least ${issue.minimum} character${issue.minimum === 1 ? '' : 's'}`
        : issue.origin === 'array'
          ? `must have at least ${issue.minimum} entries`
          : `must be at least ${issue.minimum}`;
    case 'too_big':
      return issue.origin === 'string'
        ? `must have at most ${issue.maximum} characters`
        : issue.origin === 'array'
          ? `must have at most ${issue.maximum} entries`
          : `must be at most ${issue.maximum}`;
    case 'invalid_value':
      return `must be one of ${issue.values.map(String).join(', ')}`;
    default:
      return issue.message;
  }
}

function article(kind: string): string {
  return /^[aeio]/.test(kind) ? `an ${kind}` : `a ${kind}`;
}
