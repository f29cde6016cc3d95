// Plain JavaScript: the types of this file would be stripped before the compiled code of the last start is at hand, and
// what strips them takes 18 MB and 80 ms of processor. Of all other files that code has none left.
import './kept-tick.mjs';
import './near-modules.mjs';
import { enableCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// New objects live for so short a time that a room of a few megabytes serves as well as a large one, which would grow to
// fifty with some hundred streams. Only the command line can bound it (`npm start` does); without that it stays at its
// first size, which costs processor time (docs/performance.md).
const isBounded = [...process.execArgv, process.env.NODE_OPTIONS ?? ''].some((given) =>
  given.includes('--max-semi-space-size'),
);
if (!isBounded) setFlagsFromString('--semi-space-growth-factor=1');
// Bounds of this process's own memory (scripts/serve), which the C library has read: PostgreSQL and others get
// only those that the operator has set.
for (const name of (process.env.BERTH_OWN_BOUNDS ?? '').split(' ')) delete process.env[name];
delete process.env.BERTH_OWN_BOUNDS;
enableCompileCache();
const { run } = await import('./admin/run.ts');
process.exitCode = await run(process.argv.slice(2), process.env);
// What could not be ended in order, such as a connection to a database that is silent, must not keep the process.
setTimeout(() => process.exit(), 2_000).unref();
