import { invalid } from '../../domain/errors.ts';

const form = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/;

/** A time as ISO 8601 with its offset. Throws `invalid_request`. */
export function readTime(path: string, text: string): Date {
  const time = new Date(form.test(text) ? text : Number.NaN);
  if (Number.isNaN(time.getTime())) throw invalid(path, 'must be a time such as 2026-11-28T09:00:00Z.');
  return time;
}
