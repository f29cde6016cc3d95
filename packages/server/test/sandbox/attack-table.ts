import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OWN_KERNEL, scriptedAttacks } from './attack-list.ts';
import { limitAttacks, type Verdicts } from './attack-suite.ts';

/** The columns of docs/sandbox-attacks.md. */
export const columns = [
  'bubblewrap, root',
  'bubblewrap, no root',
  'Docker, runc',
  'Docker, gVisor',
  'Podman, runc',
] as const;
export type Column = (typeof columns)[number];

const page = join(import.meta.dirname, '../../../../docs/sandbox-attacks.md');
const BEGIN = '<!-- written by the attack suite: begin -->';
const END = '<!-- written by the attack suite: end -->';

const attacks = [
  ...scriptedAttacks.map(({ id, title, harmless, ownKernel }) => ({
    id,
    title,
    why: harmless ?? (ownKernel ? OWN_KERNEL : ''),
  })),
  ...limitAttacks.map(({ id, title }) => ({ id, title, why: '' })),
];

/**
 * Compares what an attack run found with the page, or writes it there when the run was asked to
 * (`BERTH_WRITE_ATTACKS=1 npm test -- sandbox/`).
 */
export function checkColumn(column: Column, verdicts: Verdicts): void {
  const text = readFileSync(page, 'utf8');
  const cells = readCells(text);
  const found = new Map(attacks.map(({ id }) => [id, verdicts[id] ?? 'not run']));
  if (process.env['BERTH_WRITE_ATTACKS'] === '1') {
    for (const [id, verdict] of found) cells.set(`${id} ${column}`, verdict);
    const before = text.slice(0, text.indexOf(BEGIN) + BEGIN.length);
    writeFileSync(page, `${before}\n\n${table(cells)}\n\n${text.slice(text.indexOf(END))}`);
    return;
  }
  const stale = [...found].filter(([id, verdict]) => {
    const written = cells.get(`${id} ${column}`);
    return written !== verdict && !(isHarmless(id) && written === 'reached' && verdict === 'blocked');
  });
  assert.deepEqual(stale, [], 'docs/sandbox-attacks.md is stale: BERTH_WRITE_ATTACKS=1 npm test -- sandbox/');
}

/** What does no harm some kernels refuse too: Yama (`kernel.yama.ptrace_scope`), for one, to write the memory of init. */
const isHarmless = (id: string): boolean => attacks.some((attack) => attack.id === id && attack.why !== '');

/** By `<id> <column>`. */
function readCells(text: string): Map<string, string> {
  const cells = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [, , title, ...rest] = line.split('|').map((cell) => cell.trim());
    const attack = attacks.find((one) => one.title === title);
    if (!attack) continue;
    for (const [index, column] of columns.entries()) cells.set(`${attack.id} ${column}`, rest[index] ?? '');
  }
  return cells;
}

function table(cells: Map<string, string>): string {
  const rows = attacks.map(({ id, title, why }) => {
    const verdicts = columns.map((column) => cells.get(`${id} ${column}`) || 'not run');
    // The letters and half numbers are of those that no list of attacks counts.
    return `| ${[/^\d+$/.test(id) ? id : '', title, ...verdicts, verdicts.includes('reached') ? why : ''].join(' | ')} |`;
  });
  return [
    `| no. | attack | ${columns.join(' | ')} | where it is reached: why that is harmless |`,
    `|${'---|'.repeat(columns.length + 3)}`,
    ...rows,
  ].join('\n');
}
