import { invalidRequest } from '../http/validate.ts';

const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0);

/**
 * Refuses what would make another answer than the agent gives. What only tunes a model (temperature, max_tokens, seed …)
 * is the agent's own affair, and is left aside, since many clients always send it.
 */
export function refuseUnsupported(body: Record<string, unknown>, names: readonly string[]): void {
  const name = names.find((one) => !isEmpty(body[one]));
  if (name === undefined) return;
  throw invalidRequest([
    { path: name, message: 'is not supported: the agent has tools and answers of its own; leave it out' },
  ]);
}

/** An agent answers with text; a schema that the answer should keep to is nothing that it could promise. */
export function requireTextFormat(path: string, format: { type?: unknown } | null | undefined): void {
  if (format?.type === undefined || format.type === 'text') return;
  throw invalidRequest([{ path, message: 'must be text: an agent gives no other; leave it out' }]);
}
