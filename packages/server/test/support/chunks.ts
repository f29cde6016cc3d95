/** A body in chunks of one byte each, with its end (RFC 9112, section 7.1). */
export const inBytes = (body: string): string =>
  `${[...body].map((one) => `1\r\n${one}\r\n`).join('')}0\r\n\r\n`;

/** What the body of a message that came in chunks was, and in how many; null as long as it has not come whole. */
export function readChunks(message: Buffer): { body: Buffer; chunks: number; rest: Buffer } | null {
  let at = message.indexOf('\r\n\r\n') + 4;
  const pieces: Buffer[] = [];
  for (;;) {
    const end = message.indexOf('\r\n', at);
    if (end < 0) return null;
    const bytes = Number.parseInt(message.toString('latin1', at, end), 16);
    at = end + 2 + bytes + 2;
    if (message.length < at) return null;
    if (bytes === 0)
      return { body: Buffer.concat(pieces), chunks: pieces.length, rest: message.subarray(at) };
    pieces.push(message.subarray(end + 2, end + 2 + bytes));
  }
}
