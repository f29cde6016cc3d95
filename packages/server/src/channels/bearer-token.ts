import type { InboundRequest, Verdict } from '../domain/ports/channel.ts';
import { readToken, type Token } from './jwt.ts';
import { forged } from './signing.ts';

/** What stands in `Authorization: Bearer` (RFC 6750, section 2.1). */
export function bearerText(request: InboundRequest): string | undefined {
  return /^Bearer (\S+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
}

/** The JSON Web Token in `Authorization: Bearer`, unchecked; or the verdict where there is none. */
export function bearerToken(request: InboundRequest): { token: Token } | { refusal: Verdict } {
  const text = bearerText(request);
  if (!text) return { refusal: forged('signature_missing', 'The header Authorization: Bearer is needed.') };
  const token = readToken(text);
  if (!token) return { refusal: forged('signature_malformed', 'The bearer token is not a JSON Web Token.') };
  return { token };
}
