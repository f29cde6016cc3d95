import { invalid } from './errors.ts';
import { limits } from './limits.ts';

/**
 * Origins of pages (RFC 6454, section 6.2) that may speak to an agent: scheme, host and port, or `*` for all. Lower
 * case, each once. Throws `invalid_request`.
 */
export function readOrigins(path: string, origins: readonly string[]): string[] {
  if (origins.length > limits.allowedOrigins) {
    throw invalid(path, `must have at most ${limits.allowedOrigins} origins; use ["*"] to allow all.`);
  }
  const read = origins.map((text, index) => {
    const origin = text.trim().toLowerCase();
    if (origin === '*') return origin;
    if (origin.length <= 255 && /^[a-z][a-z0-9+.-]*:\/\/[a-z0-9._-]+(:\d{1,5})?$/.test(origin)) return origin;
    throw invalid(`${path}.${index}`, 'must be an origin such as https://app.example.com, or *.');
  });
  return [...new Set(read)];
}
