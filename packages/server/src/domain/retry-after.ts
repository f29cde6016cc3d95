const maxMs = 3_600_000;

/** Milliseconds of `Retry-After` in seconds or as a date, by the sender's own clock (RFC 9110, section 10.2.3), at most an hour. */
export function retryAfterMs(headers: ReadonlyMap<string, string>): number | null {
  const text = headers.get('retry-after') ?? '';
  const seconds = /^\d+(\.\d+)?$/.test(text)
    ? Number(text)
    : (Date.parse(text) - Date.parse(headers.get('date') ?? '')) / 1000;
  return Number.isFinite(seconds) && seconds >= 0 ? Math.min(seconds * 1000, maxMs) : null;
}
