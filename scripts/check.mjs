// Types, lint (the import table among its rules), format and generated files: all that can be said without running.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const bin = (name) => join(root, 'node_modules', '.bin', name);
const steps = [
  ['types', bin('tsc'), ['-p', '.']],
  ['lint', bin('oxlint'), ['--deny-warnings']],
  ['format', bin('oxfmt'), ['--check', '.']],
  ['generated', process.execPath, ['scripts/write-sdk-types.mjs', '--check']],
];

let failed = 0;
for (const [name, command, args] of steps) {
  const result = spawnSync(command, args, { cwd: root, encoding: 'utf8' });
  if (result.status === 0) {
    process.stdout.write(`check ${name}: ok\n`);
    continue;
  }
  failed += 1;
  process.stdout.write(`check ${name}: FAILED\n${result.stdout}${result.stderr}\n`);
}
process.exit(failed === 0 ? 0 : 1);
