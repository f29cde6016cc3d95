import { launch } from './launcher.ts';
import { readLaunchData } from './launch-data.ts';
import { pathsBelow, sandboxRoot } from './settings.ts';

// Loaded before it is known for whom: this, and the start of Node, is what a waiting sandbox saves (docs/sandbox.md).
await import('./agent.ts');

const data = readLaunchData(0);
// The service is gone, and nobody will ever want this sandbox.
if (data === null) process.exit(0);
for (const name of Object.keys(process.env)) delete process.env[name];
Object.assign(process.env, data.env);
const paths = pathsBelow(sandboxRoot(process.env));
// The volume was mounted over the folder of this name.
process.chdir(paths.workspace);
process.exitCode = await launch(paths, process.env);
// As in launch.ts.
process.exit();
