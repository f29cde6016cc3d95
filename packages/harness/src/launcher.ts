import { LaunchError, readSettings } from './settings.ts';
import type { Paths } from './settings.ts';
import { Loopback } from './loopback.ts';
import { syncWorkspace } from './workspace.ts';

/** The first process of a sandbox (docs/design/sandbox-launch.md). Resolves with the exit code. */
export async function launch(paths: Paths, env: NodeJS.ProcessEnv): Promise<number> {
  const note = (line: string) => process.stderr.write(`berth: ${line}\n`);
  try {
    const settings = readSettings(env);
    syncWorkspace({ ...paths, commit: settings.commit, note });
    const loopback = new Loopback(settings, paths.gatewaySocket, env);
    // Only the branch that is taken is loaded: it counts at every start of a sandbox.
    if (settings.command) {
      const { runCustom } = await import('./custom.ts');
      return await runCustom(settings.command, paths.workspace, await loopback.childEnv());
    }
    keepRunning(note);
    const { Agent } = await import('./agent.ts');
    const agent = new Agent({
      settings,
      gatewaySocket: paths.gatewaySocket,
      childEnv: loopback.childEnv,
      input: process.stdin,
      output: process.stdout,
    });
    await agent.serve();
    return 0;
  } catch (error) {
    if (!(error instanceof LaunchError)) throw error;
    note(error.message);
    return error.exitCode;
  }
}

/** One conversation's error must not end the others; without a reader of our answers there is nothing left to do. */
function keepRunning(note: (line: string) => void): void {
  process.on('uncaughtException', (error) => note(error.stack ?? String(error)));
  process.on('unhandledRejection', (error) =>
    note(error instanceof Error ? (error.stack ?? '') : String(error)),
  );
  process.stdout.on('error', () => process.exit(0));
  process.stderr.on('error', () => undefined);
}
