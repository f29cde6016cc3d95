import { HostLink } from './host-link.ts';
import { LaunchError, readSettings } from './settings.ts';
import type { Paths } from './settings.ts';
import { Loopback } from './loopback.ts';
import { syncWorkspace } from './workspace.ts';

/** The service was away for too long, or does not take what it is told. */
const noHostCode = 75;
/** What was written just before the end still leaves. */
const lingerMs = 50;

/** The first process of a sandbox (docs/design/sandbox-launch.md). Resolves with the exit code. */
export async function launch(paths: Paths, env: NodeJS.ProcessEnv): Promise<number> {
  let link: HostLink | null = null;
  const note = (line: string) => {
    process.stderr.write(`berth: ${line}\n`);
    link?.log(`berth: ${line}`);
  };
  try {
    const settings = readSettings(env);
    const begunMs = performance.now();
    syncWorkspace({ ...paths, commit: settings.commit, note });
    const loopback = new Loopback(settings, paths.gatewaySocket, env);
    link = new HostLink({
      path: paths.controlSocket,
      openExec: async (send) => {
        const { ExecStreams } = await import('./exec.ts');
        const log = (line: string) => link?.log(line);
        return new ExecStreams({ send, env: loopback.childEnv, workspace: paths.workspace, log, begunMs });
      },
      onGiveUp(why) {
        note(why);
        process.exit(noHostCode);
      },
    });
    // Only the branch that is taken is loaded: it counts at every start of a sandbox.
    if (settings.command) {
      const { runCustom } = await import('./custom.ts');
      const running = runCustom(settings.command, paths.workspace, await loopback.childEnv(), link);
      link.dial();
      const code = await running;
      await new Promise((resolve) => setTimeout(resolve, lingerMs));
      return code;
    }
    keepRunning(note);
    const { Agent } = await import('./agent.ts');
    const agent = new Agent({
      settings,
      gatewaySocket: paths.gatewaySocket,
      childEnv: loopback.childEnv,
      lines: link,
      host: link,
    });
    const served = agent.serve();
    link.dial();
    await served;
    return 0;
  } catch (error) {
    if (!(error instanceof LaunchError)) throw error;
    note(error.message);
    return error.exitCode;
  }
}

/** One conversation's error must not end the others. */
function keepRunning(note: (line: string) => void): void {
  process.on('uncaughtException', (error) => note(error.stack ?? String(error)));
  process.on('unhandledRejection', (error) =>
    note(error instanceof Error ? (error.stack ?? '') : String(error)),
  );
  process.stderr.on('error', () => undefined);
}
