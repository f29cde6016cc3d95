import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OWN_KERNEL, scriptedAttacks } from './attack-list.ts';
import { limitAttacks, type Verdicts } from './attack-suite.ts';

/** A table of docs/sandbox-attacks.md, between two marks that have its name. */
export interface AttackTable<Column extends string> {
  name: string;
  columns: readonly Column[];
  /** `why`: where it is reached, or cannot be tried. A number is one of the list of attacks; others have no number. */
  rows: { id: string; title: string; why: string }[];
  lastColumn: string;
}

/** The columns of what is tried from inside. */
export const columns = [
  'bubblewrap, root',
  'bubblewrap, no root',
  'Docker, runc',
  'Docker, gVisor',
  'Podman, runc',
] as const;
export type Column = (typeof columns)[number];

const inside: AttackTable<Column> = {
  name: 'the attack suite',
  columns,
  rows: [
    ...scriptedAttacks.map(({ id, title, harmless, ownKernel }) => ({
      id,
      title,
      why: harmless ?? (ownKernel ? OWN_KERNEL : ''),
    })),
    ...limitAttacks.map(({ id, title, ownKernel }) => ({ id, title, why: ownKernel ?? '' })),
  ],
  lastColumn: 'where it is reached: why that is harmless, or what closes it',
};

/** What is tried with its way out: from bubblewrap by how the sandbox reaches the proxy, and from containers. */
export const wayOut: AttackTable<
  'proxy mode' | 'transparent mode' | 'Docker, runc' | 'Docker, gVisor' | 'Podman, runc'
> = {
  name: 'the tests of the way out',
  columns: ['proxy mode', 'transparent mode', 'Docker, runc', 'Docker, gVisor', 'Podman, runc'],
  rows: [
    {
      id: '33',
      title:
        'A redirect to the metadata, a name with a public and a private address (DNS rebinding), another name or none in TLS (SNI), an IPv6-mapped address, CONNECT to an address',
      why: '',
    },
    {
      id: '34',
      title:
        'Get the value of a brokered secret: by its placeholder to another host, or told back by its own',
      why: '',
    },
  ],
  lastColumn: 'where it is reached: why that is harmless',
};

const page = join(import.meta.dirname, '../../../../docs/sandbox-attacks.md');
const mark = (name: string, end: 'begin' | 'end'): string => `<!-- written by ${name}: ${end} -->`;

/** The column of a run of all attacks from inside. */
export function checkColumn(column: Column, verdicts: Verdicts): void {
  const found = inside.rows.map(({ id }): [string, string] => [id, verdicts[id] ?? 'not run']);
  checkCells(inside, column, Object.fromEntries(found));
}

/** Compares what a run found, by row, with the page; or writes it there when the run was asked to (see the page). */
export function checkCells<Name extends string>(
  table: AttackTable<Name>,
  column: Name,
  verdicts: Record<string, string>,
): void {
  const text = readFileSync(page, 'utf8');
  const cells = readCells(table, text);
  const found = Object.entries(verdicts);
  if (process.env['BERTH_WRITE_ATTACKS'] === '1') {
    for (const [id, verdict] of found) cells.set(`${id} ${column}`, verdict);
    const [begin, end] = [mark(table.name, 'begin'), mark(table.name, 'end')];
    const before = text.slice(0, text.indexOf(begin) + begin.length);
    writeFileSync(page, `${before}\n\n${shown(table, cells)}\n\n${text.slice(text.indexOf(end))}`);
    return;
  }
  const stale = found.filter(([id, verdict]) => {
    const written = cells.get(`${id} ${column}`);
    return written !== verdict && !(isHarmless(table, id) && written === 'reached' && verdict === 'blocked');
  });
  assert.deepEqual(stale, [], 'docs/sandbox-attacks.md is stale; how to write it anew stands there.');
}

/** Every row of the page that has a number, with its cells; the numbers are of the list of attacks. */
export function numberedRows(): { number: number; cells: string[] }[] {
  return readFileSync(page, 'utf8')
    .split('\n')
    .filter((line) => /^\| \d+ \|/.test(line))
    .map((line) => {
      const [, number, , ...cells] = line.split('|').map((cell) => cell.trim());
      // The last two are the reason and what stands after the last bar.
      return { number: Number(number), cells: cells.slice(0, -2) };
    });
}

/** What does no harm some kernels refuse too: Yama (`kernel.yama.ptrace_scope`), for one, to write the memory of init. */
const isHarmless = ({ rows }: AttackTable<string>, id: string): boolean =>
  rows.some((attack) => attack.id === id && attack.why !== '');

/** By `<id> <column>`. */
function readCells({ rows, columns: names }: AttackTable<string>, text: string): Map<string, string> {
  const cells = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [, , title, ...rest] = line.split('|').map((cell) => cell.trim());
    const attack = rows.find((one) => one.title === title);
    if (!attack) continue;
    for (const [index, column] of names.entries()) cells.set(`${attack.id} ${column}`, rest[index] ?? '');
  }
  return cells;
}

function shown(
  { rows, columns: names, lastColumn }: AttackTable<string>,
  cells: Map<string, string>,
): string {
  const lines = rows.map(({ id, title, why }) => {
    const verdicts = names.map((column) => cells.get(`${id} ${column}`) || 'not run');
    const isExplained = verdicts.some((verdict) => verdict === 'reached' || verdict === '–');
    // The letters and half numbers are of those that no list of attacks counts.
    return `| ${[/^\d+$/.test(id) ? id : '', title, ...verdicts, isExplained ? why : ''].join(' | ')} |`;
  });
  return [
    `| no. | attack | ${names.join(' | ')} | ${lastColumn} |`,
    `|${'---|'.repeat(names.length + 3)}`,
    ...lines,
  ].join('\n');
}
