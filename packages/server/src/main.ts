import { enableCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// Room for new objects stays as it is at the start: it would grow to a hundred megabytes with some hundred streams, whose
// objects live for so short a time that a small room serves as well (docs/performance.md).
setFlagsFromString('--semi-space-growth-factor=1');
// Compiled code is kept between starts; the import below must come after it to profit.
enableCompileCache();
const { run } = await import('./admin/run.ts');
process.exitCode = await run(process.argv.slice(2), process.env);
// What could not be ended in order, such as a connection to a database that is silent, must not keep the process.
setTimeout(() => process.exit(), 2_000).unref();
