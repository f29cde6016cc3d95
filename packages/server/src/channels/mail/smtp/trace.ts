/** How many servers a mail has passed: its Received headers (RFC 5321, section 6.3). */
export function receivedCount(raw: Buffer): number {
  const head = raw
    .subarray(0, 256 * 1024)
    .toString('latin1')
    .split(/\r?\n\r?\n/, 1)[0]!;
  return head.match(/^received:/gim)?.length ?? 0;
}
