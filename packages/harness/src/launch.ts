import { launch } from './launcher.ts';
import { pathsBelow, sandboxRoot } from './settings.ts';

process.exitCode = await launch(pathsBelow(sandboxRoot(process.env)), process.env);
// A child that was left in the background holds pipes, which must not hold the sandbox.
process.exit();
