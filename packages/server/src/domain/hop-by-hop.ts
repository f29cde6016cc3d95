/** Fields of one connection only (RFC 9110, section 7.6.1), and those that whoever forwards a message writes anew. */
export const hopByHop: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'content-length',
  'expect',
  'http2-settings',
]);

export type Fields = [name: string, value: string][];

/** Names and values as they came, in order, of what Node gives as one list (`rawHeaders`). */
export function headerPairs(rawHeaders: readonly string[]): Fields {
  const pairs: Fields = [];
  for (let at = 0; at < rawHeaders.length; at += 2) pairs.push([rawHeaders[at]!, rawHeaders[at + 1]!]);
  return pairs;
}

/** The members of a list in all fields of a name (RFC 9110, section 5.6.1), in lower case. */
export function listedIn(pairs: Fields, wanted: string): string[] {
  return pairs
    .filter(([name]) => name.toLowerCase() === wanted)
    .flatMap(([, value]) => value.split(','))
    .map((part) => part.trim().toLowerCase())
    .filter(Boolean);
}
