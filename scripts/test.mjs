// Runs the checks and the tests. `--faults` runs the long fault tests instead. Other arguments are file filters.
import { spawn } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const filters = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const faults = process.argv.includes('--faults');

const suffix = faults ? '.faults.ts' : '.test.ts';
const files = globSync(`packages/*/test/**/*${suffix}`, { cwd: root })
  .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
  .sort();
const isScenario = (file) => file.includes('/scenario/');

/**
 * The files of a group share one process, which is what makes them quick: a group is a folder. The contract's files share
 * one service. Every other file that starts whole services, or engines of containers, has a process of its own, so that
 * one that fails to start takes no other file with it.
 */
function groupOf(file) {
  if (file.endsWith('/docker.test.ts')) return file;
  if (!isScenario(file)) return dirname(file);
  return file.includes('/contract-') ? 'contract' : file;
}
// The large ones begin first, so that none is left alone at the end.
const groups = [...Map.groupBy(files, groupOf).values()].sort((a, b) => b.length - a.length);

// What all processes of the run share: a database that is made once, and code that is compiled once.
const shared = mkdtempSync(join(process.getuid?.() === 0 ? '/tmp' : tmpdir(), 'berth-s-'));
const env = {
  ...process.env,
  // A process that starts others is copied with the tables of all its memory: the C library gives back what was freed.
  MALLOC_ARENA_MAX: '1',
  MALLOC_TRIM_THRESHOLD_: '131072',
  MALLOC_MMAP_THRESHOLD_: '131072',
  BERTH_TEST_SHARED_DIR: shared,
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(root, 'node_modules', '.cache', 'compiled'),
};
process.once('exit', () => rmSync(shared, { recursive: true, force: true }));

const running = new Set();
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, () => {
    queue.length = 0;
    for (const child of running) child.kill(signal);
  });

/** Resolves with how it ended, its pid and all that it wrote to standard output. */
function run(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'] });
    running.add(child);
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (piece) => (text += piece));
    child.on('close', (code, signal) => {
      running.delete(child);
      resolve({ isGood: code === 0, end: signal ?? `code ${code}`, pid: child.pid, text });
    });
  });
}

// One test that hangs must end with its name in the output, not with the run cut off from outside. The long fault runs
// have limits of their own.
const limitMs = faults ? 3_600_000 : 300_000;

let failed = 0;
/** The names of all tests that failed and what they said, told again at the end: whoever sees only that must know them. */
const failures = new Set();
const reasons = [];
const totals = { pass: 0, fail: 0, skipped: 0, cancelled: 0 };

/** In plain letters: where something asks for colours, there are colours in it. */
function count(shown) {
  const text = stripVTControlCharacters(shown);
  for (const line of text.split('\n')) {
    const match = /^ℹ (pass|fail|skipped|cancelled) (\d+)/.exec(line);
    if (match) totals[match[1]] += Number(match[2]);
    const failing = /^\s*✖ (?!failing tests:)(.*) \([\d.]+ms\)$/.exec(line);
    if (failing) failures.add(failing[1]);
  }
  const reason = /^✖ failing tests:\n([^]*)/m.exec(text)?.[1];
  if (reason) reasons.push(reason.trim());
  return reason !== undefined;
}

/** The folders that tests have made which passed, and the group of each. */
const made = new Map();

function noteFolders(group, pid) {
  const list = join(shared, `folders-${pid}`);
  if (!existsSync(list)) return;
  for (const folder of readFileSync(list, 'utf8').trim().split('\n')) made.set(folder, groupOf(group[0]));
}

/** Every test removes the folders that it made: what one leaves stays on the machine for ever. */
async function checkFolders() {
  const left = () => [...made].filter(([folder]) => existsSync(folder));
  // A database is stopped and removed by a process of its own, once that of its tests has ended.
  for (const end = Date.now() + 20_000; left().length > 0 && Date.now() < end;) await delay(100);
  for (const [folder, group] of left()) {
    failed += 1;
    failures.add(`${group} left ${folder}: whichever test made it must remove it`);
  }
}

async function runGroup(group) {
  const startedMs = Date.now();
  // No option of V8 is among them: with one Node compiles its own code anew in every process, and the services and
  // commands that the tests start could not use what a test process has compiled.
  const { isGood, end, pid, text } = await run([
    '--import=./packages/server/src/near-modules.mjs',
    '--import=./packages/server/test/support/small-heap.mjs',
    '--import=./packages/server/test/support/made-folders.mjs',
    '--test',
    '--test-isolation=none',
    `--test-timeout=${limitMs}`,
    '--test-reporter=spec',
    ...group,
  ]);
  // Whole, one after the other: who reads it must not have to sort the lines of several.
  const seconds = ((Date.now() - startedMs) / 1000).toFixed(0);
  process.stdout.write(`\n${groupOf(group[0])} (${seconds} s)\n${text}`);
  const isExplained = count(text);
  if (isGood) return noteFolders(group, pid);
  failed += 1;
  // It was ended from outside, for want of memory for example, or by what no test has waited for.
  if (!isExplained) failures.add(`${groupOf(group[0])} ended with ${end}, and no test of it says why`);
}

async function runChecks() {
  const { isGood, text } = await run(['scripts/check.mjs']);
  process.stdout.write(text);
  if (isGood) return;
  failed += 1;
  reasons.push(text.trim());
  for (const [, name] of text.matchAll(/^check (.*): FAILED$/gm)) failures.add(`check ${name}`);
}

const queue = groups.map((group) => () => runGroup(group));
if (filters.length === 0 && !faults) queue.unshift(runChecks);
// Most of a test is waiting, so that more of them than there are processors run side by side. Fault runs
// take turns, since they measure how the machine bears them.
const lanes = faults ? 1 : Math.min(availableParallelism() + 1, 8);
await Promise.all(
  Array.from({ length: lanes }, async () => {
    for (let next = queue.shift(); next; next = queue.shift()) await next();
  }),
);
await checkFolders();

if (totals.pass === 0) failed += 1;
for (const reason of reasons) process.stdout.write(`\n${reason.slice(0, 20_000)}\n`);
for (const name of failures) process.stdout.write(`\n✖ ${name}`);
process.stdout.write(
  `\n${totals.pass} passed, ${totals.fail + totals.cancelled} failed, ${totals.skipped} skipped\n`,
);
process.exit(failed === 0 ? 0 : 1);
