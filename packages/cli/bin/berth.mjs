#!/usr/bin/env node
// Plain JavaScript, so that an older Node gets as far as starting the newer one that came with the packages.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..', '..');
const main = join(here, '..', 'src', 'main.ts');
const bundled = join(root, 'node_modules', '.bin', 'node');

if (Number(process.versions.node.split('.')[0]) >= 24) {
  process.argv[1] = main;
  // The optimizing compilers cost a command more than it lasts. That of WebAssembly takes 0.2 s of processor and 23 MB for the
  // parser of `fetch` after three requests already (docs/decisions/0370-compilers-that-never-pay.md).
  for (const flag of ['--no-opt', '--no-maglev', '--wasm-tiering-budget=1000000000'])
    setFlagsFromString(flag);
  // Types are stripped and code is compiled by the first run only: most of the time of a short command.
  module.enableCompileCache();
  await import(main);
} else if (existsSync(bundled)) {
  const child = spawn(bundled, [main, ...process.argv.slice(2)], { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => {
    if (signal) process.kill(process.pid, signal);
    else process.exit(code ?? 1);
  });
} else {
  process.stderr.write(`berth needs Node 24 or newer; this is ${process.version}.\n`);
  process.exit(1);
}
