// Runs the checks and then the tests. `--faults` runs the long fault tests instead. Other arguments are file filters.
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const filters = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const faults = process.argv.includes('--faults');

/** `print` gets the output as it comes. Resolves with the exit code. */
function run(command, args, print, onLine = () => {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
    let rest = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text) => {
      print(text);
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) onLine(line);
    });
    child.on('close', (code) => resolve(code ?? 1));
    for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => child.kill(signal));
  });
}

const suffix = faults ? '.faults.ts' : '.test.ts';
const files = globSync(`packages/*/test/**/*${suffix}`, { cwd: root })
  .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
  .sort();
const isScenario = (file) => file.includes('/scenario/');
const isContract = (file) => isScenario(file) && file.includes('/contract-');
// Most files share one process, which is what makes them quick. The contract's share one service. Every other file that
// starts whole services has a process of its own, so that one that fails to start takes no other file with it. The lanes
// run side by side: most of a test is waiting. Fault runs take turns, since they measure how the machine bears them.
const scenarios = [
  ['none', files.filter(isContract)],
  ['process', files.filter((file) => isScenario(file) && !isContract(file))],
];
const others = [['none', files.filter((file) => !isScenario(file))]];
const lanes = faults ? [[...others, ...scenarios]] : [scenarios, others];

let failed = 0;
if (filters.length === 0 && !faults)
  failed +=
    (await run(process.execPath, ['scripts/check.mjs'], (text) => process.stdout.write(text))) === 0 ? 0 : 1;

// One test that hangs must end with its name in the output, not with the run cut off from outside. Where a file has a
// process of its own, the limit is the whole file's. The long fault runs have limits of their own.
const limitMs = (isolation) => (faults ? 3_600_000 : isolation === 'process' ? 480_000 : 300_000);

/** The names of all tests that failed, told again at the end: whoever sees only that must know them. */
const failures = new Set();
const totals = { pass: 0, fail: 0, skipped: 0, cancelled: 0 };
async function runLane(groups, print) {
  for (const [isolation, group] of groups) {
    if (group.length === 0) continue;
    const args = [
      '--test',
      `--test-isolation=${isolation}`,
      '--test-concurrency=1',
      `--test-timeout=${limitMs(isolation)}`,
      '--test-reporter=spec',
      '--expose-gc',
      ...group,
    ];
    const code = await run(process.execPath, args, print, (line) => {
      const match = /^ℹ (pass|fail|skipped|cancelled) (\d+)/.exec(line);
      if (match) totals[match[1]] += Number(match[2]);
      const failing = /^\s*✖ (?!failing tests:)(.*) \([\d.]+ms\)$/.exec(line);
      if (failing) failures.add(failing[1]);
    });
    if (code !== 0) failed += 1;
  }
}

// The output of one lane stands whole before the next one's: who reads it must not have to sort lines.
let shown = 0;
const printers = [];
const done = [];
await Promise.all(
  lanes.map(async (groups, lane) => {
    const held = [];
    const flush = () => {
      for (const text of held.splice(0)) process.stdout.write(text);
    };
    printers[lane] = flush;
    await runLane(groups, (text) => {
      held.push(text);
      if (shown === lane) flush();
    });
    done[lane] = true;
    while (done[shown]) printers[++shown]?.();
  }),
);
if (totals.pass === 0) failed += 1;
for (const name of failures) process.stdout.write(`\n✖ ${name}`);
process.stdout.write(
  `\n${totals.pass} passed, ${totals.fail + totals.cancelled} failed, ${totals.skipped} skipped\n`,
);
process.exit(failed === 0 ? 0 : 1);
