/** Longer than any line that the service would take; what has no newline until then is handed on as it is. */
const maxLineBytes = 16 * 1024 * 1024;

/** Hands on whole lines only, with their newlines. */
export function wholeLines(take: (lines: Buffer) => void): (chunk: Buffer) => void {
  let rest: Buffer[] = [];
  let restBytes = 0;
  return (chunk) => {
    const end = chunk.lastIndexOf(0x0a) + 1;
    if (end > 0 || restBytes > maxLineBytes) {
      const head = end > 0 ? chunk.subarray(0, end) : chunk;
      take(Buffer.concat([...rest, head]));
      rest = [];
      restBytes = 0;
      if (head.length === chunk.length) return;
    }
    const tail = chunk.subarray(end);
    rest.push(tail);
    restBytes += tail.length;
  };
}
