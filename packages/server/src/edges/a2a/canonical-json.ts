/** JSON by the JSON Canonicalization Scheme (RFC 8785): ECMAScript writes numbers and texts as it wants them already. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  let text = '';
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) text += `${text === '' ? '' : ','}${canonicalJson(item ?? null)}`;
    return `[${text}]`;
  }
  // By UTF-16 code units, as texts are sorted.
  for (const name of Object.keys(value).sort()) {
    const item = (value as Record<string, unknown>)[name];
    if (item === undefined) continue;
    text += `${text === '' ? '' : ','}${JSON.stringify(name)}:${canonicalJson(item)}`;
  }
  return `{${text}}`;
}
