import { DomainError } from '../../domain/errors.ts';

/** The token of an `Authorization` header (RFC 6750, section 2.1); null when there is no such header. */
export function bearerToken(header: string | undefined): string | null {
  if (header === undefined) return null;
  const text = header.trim();
  if (text === '') return null;
  const match = /^Bearer(?: +(\S*))?$/i.exec(text);
  if (match) return match[1] ?? null;
  throw new DomainError('key_invalid', 'Send the API key as "Authorization: Bearer <API_KEY>".');
}
