import { invalidRequest } from './validate.ts';
import { isStorable } from './text.ts';

/** Query parameters as texts, each at most once. Throws `invalid_request`. */
export function parseQuery(text: string): Record<string, string> {
  const query: Record<string, string> = Object.create(null) as Record<string, string>;
  if (text === '') return query;
  for (const [name, value] of new URLSearchParams(text)) {
    if (!isStorable(name)) throw invalidRequest([{ path: 'query', message: 'must not contain U+0000' }]);
    if (name in query)
      throw invalidRequest([{ path: name.slice(0, 200), message: 'must be given only once' }]);
    if (!isStorable(value))
      throw invalidRequest([{ path: name.slice(0, 200), message: 'must not contain U+0000' }]);
    query[name] = value;
  }
  return query;
}
