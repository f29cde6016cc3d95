import { enableCompileCache } from 'node:module';

// Compiled code is kept between starts; the import below must come after it to profit.
enableCompileCache();
const { run } = await import('./admin/run.ts');
process.exitCode = await run(process.argv.slice(2), process.env);
