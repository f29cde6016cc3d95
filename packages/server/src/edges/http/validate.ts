import type { z } from 'zod';
import type { ErrorDetail } from '../../domain/errors.ts';
import { DomainError } from '../../domain/errors.ts';

/** Parses or throws `invalid_request`, which names each wrong field and repeats none of the values sent. */
export function validate<S extends z.ZodType>(
  schema: S,
  value: unknown,
  root: 'body' | 'query',
): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw invalidRequest(result.error.issues.flatMap((issue) => toDetails(issue, root)));
}

export function invalidRequest(details: ErrorDetail[]): DomainError {
  const [first] = details;
  const more = details.length > 1 ? ` (and ${details.length - 1} more, see details)` : '';
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
