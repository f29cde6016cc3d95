import { launch } from './launcher.ts';
import { sandboxPaths } from './settings.ts';

process.exitCode = await launch(sandboxPaths, process.env);
// A child that was left in the background holds pipes, which must not hold the sandbox.
process.exit();
