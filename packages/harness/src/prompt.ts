/** The text of a prompt's content blocks; null when it is no array of them. Blocks of other kinds are named, not shown. */
export function promptText(prompt: unknown): string | null {
  if (!Array.isArray(prompt)) return null;
  const parts: string[] = [];
  for (const block of prompt) {
    if (typeof block !== 'object' || block === null) return null;
    parts.push(blockText(block as Record<string, unknown>));
  }
  return parts.filter((part) => part !== '').join('\n\n');
}

function blockText(block: Record<string, unknown>): string {
  if (block['type'] === 'text') return `${block['text'] ?? ''}`;
  if (block['type'] === 'resource_link') return `[${block['name'] ?? 'resource'}](${block['uri'] ?? ''})`;
  const resource = block['resource'] as Record<string, unknown> | undefined;
  if (block['type'] === 'resource' && typeof resource?.['text'] === 'string') {
    return `<resource uri="${resource['uri'] ?? ''}">\n${resource['text']}\n</resource>`;
  }
  return `[A part of kind "${block['type']}" is left out: this agent reads text only.]`;
}
