/**
 * Whether a text can be the short name of a branch or tag, or a commit id: git-check-ref-format, and short enough for
 * a file name. A leading '-' would be read as an option.
 */
export function isRefName(text: string): boolean {
  if (text.length === 0 || text.length > 200) return false;
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u0020\u007f~^:?*[\\\ud800-\udfff]/.test(text)) return false;
  if (text.includes('..') || text.includes('@{') || text.includes('//') || text === '@') return false;
  if (text.endsWith('/') || text.endsWith('.')) return false;
  return text.split('/').every((part) => !/^[.-]/.test(part) && part !== '' && !part.endsWith('.lock'));
}

export function isCommitId(text: string): boolean {
  return /^[0-9a-f]{40}$/.test(text);
}

/** `refs/heads/main` and `refs/tags/v1` as people write them. */
export function shortName(ref: string): string {
  return ref.replace(/^refs\/(heads|tags)\//, '');
}
