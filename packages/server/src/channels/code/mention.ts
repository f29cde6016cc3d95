/** Whether a text names somebody with @, as a whole name: `@agent` is not named by `@agent-two` or in `me@agent`. */
export function names(text: string, name: string | null): boolean {
  if (name === null || name === '') return false;
  const wanted = `@${name.replace(/^@/, '')}`.toLowerCase();
  const lower = text.toLowerCase();
  for (let from = lower.indexOf(wanted); from !== -1; from = lower.indexOf(wanted, from + 1)) {
    const before = lower[from - 1] ?? ' ';
    const after = lower[from + wanted.length] ?? ' ';
    if (!/[\w`]/.test(before) && !/[\w-]/.test(after)) return true;
  }
  return false;
}

/** Nobody sees it in the rendered comment, and it finds the comment again. */
export const hiddenMark = (mark: string): string => `<!-- berth:${mark} -->`;
