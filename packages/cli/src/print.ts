import type { Context } from './command.ts';

/**
 * A text that someone else wrote, made safe for a terminal: control characters (escape sequences among them) and
 * bidirectional overrides are shown as escapes. Newlines, those of Windows and HTTP too, and tabs stay when `multiline`.
 */
export function safe(text: string, multiline = false): string {
  const lines = multiline ? text.replaceAll('\r\n', '\n') : text;
  // oxlint-disable-next-line no-control-regex
  return lines.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (character) => {
    if (character === '\n' || character === '\t')
      return multiline ? character : JSON.stringify(character).slice(1, -1);
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}

/** One object: JSON, or a line per field. */
export function printOne(context: Context, value: object, fields: [string, unknown][]): void {
  if (context.json) return context.out(`${JSON.stringify(value, null, 2)}\n`);
  const width = Math.max(...fields.map(([name]) => name.length));
  for (const [name, field] of fields) context.out(`${name.padEnd(width)}  ${safe(String(field ?? '-'))}\n`);
}

/** A list: a JSON array, or a table without a frame; its heading goes to standard error, so that stdout is data. */
export function printTable(context: Context, items: object[], heading: string[], rows: unknown[][]): void {
  if (context.json) return context.out(`${JSON.stringify(items, null, 2)}\n`);
  const cells = rows.map((row) => row.map((cell) => safe(String(cell ?? '-'))));
  const widths = heading.map((name, at) => Math.max(name.length, ...cells.map((row) => row[at]!.length)));
  const line = (row: string[]) =>
    `${row
      .map((cell, at) => cell.padEnd(widths[at]!))
      .join('  ')
      .trimEnd()}\n`;
  if (rows.length === 0) return context.note('none\n');
  context.note(line(heading.map((name) => name.toUpperCase())));
  for (const row of cells) context.out(line(row));
}
