/** A key set or a configuration as JSON; null when whoever answered sent something else. */
export function parsedDocument(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
