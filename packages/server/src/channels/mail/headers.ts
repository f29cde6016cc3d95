/** The header lines of a message, with folded ones joined (RFC 5322, section 2.2.3). At most 500. */
export function unfoldHeaders(text: string): [name: string, value: string][] {
  const headers: [string, string][] = [];
  for (const line of text.slice(0, 256 * 1024).split(/\r\n|\n/)) {
    const last = headers.at(-1);
    if (/^[ \t]/.test(line) && last) {
      last[1] += ` ${line.trim()}`;
      continue;
    }
    const colon = line.indexOf(':');
    if (colon > 0 && headers.length < 500)
      headers.push([line.slice(0, colon).trim(), line.slice(colon + 1).trim()]);
  }
  return headers;
}
