import type { Figure } from './figure.ts';
import type { Machine } from './machine.ts';

const columns = ['figure', 'median', 'spread', 'n', 'target', '', 'floor', '× floor'];

/** The report for people. */
export function table(facts: Machine, figures: readonly Figure[]): string {
  const rows = [columns, ...figures.map(row)];
  const widths = columns.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  const lines = rows.map((cells) =>
    cells
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)))
      .join('  '),
  );
  const about = `${facts.cores} × ${facts.cpu}, ${facts.memoryGb} GB, Linux ${facts.kernel}, Node ${facts.node}, data on ${facts.disk}, load ${facts.load} before the run`;
  return `${about}\n\n${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

function row(entry: Figure): string[] {
  const { name, unit, value, min, max, samples, target, isMet, floor, ratioToFloor, missing } = entry;
  if (missing !== null) return [name, missing, '', '', '', '', '', ''];
  return [
    name,
    `${round(value)} ${unit}`.trim(),
    samples > 1 ? `${round(min)} – ${round(max)}` : '',
    String(samples),
    target ? `${target.kind === 'at most' ? '≤' : '≥'} ${round(target.value)}` : '',
    isMet === null ? '' : isMet ? 'ok' : 'MISSED',
    floor === null ? '' : round(floor),
    ratioToFloor === null ? '' : round(ratioToFloor),
  ];
}

function round(value: number): string {
  if (!Number.isFinite(value)) return '?';
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
