// Runs the checks and then the tests. `--faults` runs the long fault tests instead. Other arguments are file filters.
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const filters = process.argv.slice(2).filter((argument) => !argument.startsWith('--'));
const faults = process.argv.includes('--faults');

function run(command, args, onLine) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
    let rest = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text) => {
      process.stdout.write(text);
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
// What starts whole services runs apart from what shares this process, so that neither disturbs the other's clocks.
const groups = [
  files.filter((file) => !file.includes('/scenario/')),
  files.filter((file) => file.includes('/scenario/')),
];

let failed = 0;
if (filters.length === 0 && !faults)
  failed += (await run(process.execPath, ['scripts/check.mjs'], () => {})) === 0 ? 0 : 1;

const totals = { pass: 0, fail: 0, skipped: 0, cancelled: 0 };
for (const group of groups) {
  if (group.length === 0) continue;
  const args = ['--test', '--test-isolation=none', '--test-reporter=spec', '--expose-gc', ...group];
  const code = await run(process.execPath, args, (line) => {
    const match = /^ℹ (pass|fail|skipped|cancelled) (\d+)/.exec(line);
    if (match) totals[match[1]] += Number(match[2]);
  });
  if (code !== 0) failed += 1;
}
if (totals.pass === 0) failed += 1;
process.stdout.write(
  `\n${totals.pass} passed, ${totals.fail + totals.cancelled} failed, ${totals.skipped} skipped\n`,
);
process.exit(failed === 0 ? 0 : 1);
