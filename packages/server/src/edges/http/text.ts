/** What PostgreSQL's text cannot hold (U+0000) or UTF-8 cannot carry (a surrogate without its other half). */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/** The dotted path of the first text (or field name) that is not storable; null when all are. */
export function badCharacter(root: unknown): string | null {
  // A list of its own instead of recursion: a body may be nested deeper than the call stack.
  const open: [path: string, value: unknown][] = [['', root]];
  for (let next = open.pop(); next; next = open.pop()) {
    const [path, value] = next;
    if (typeof value === 'string' && !isStorable(value)) return path || 'body';
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, inner] of Object.entries(value)) {
      if (!isStorable(name)) return path || 'body';
      open.push([path ? `${path}.${name}` : name, inner]);
    }
  }
  return null;
}
