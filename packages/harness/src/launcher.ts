import { constants } from 'node:os';
import { HostLink } from './host-link.ts';
import { initHasClosed } from './init.ts';
import { LaunchError, readSettings } from './settings.ts';
import type { Paths } from './settings.ts';
import { Loopback } from './loopback.ts';
import { syncWorkspace } from './workspace.ts';

/** The service was away for too long, or does not take what it is told. */
const noHostCode = 75;
/** What was written just before the end still leaves. */
const lingerMs = 50;

/** For lines of the log that the service has not taken yet: it may not even have answered when the harness has ended. */
const logMs = 1000;

/** For those that do not end when they are told to, where nobody waits for it. */
const usualGraceMs = 5000;
const fatalCode = 1;

type Note = (line: string) => void;

/**
 * The first process of a sandbox (docs/design/sandbox-launch.md). Resolves with the exit code when nothing else runs in it
 * any more, however it came to its end.
 */
export async function launch(
  paths: Paths,
  env: NodeJS.ProcessEnv,
  { maxAwayMs, giveUpGraceMs = usualGraceMs }: { maxAwayMs?: number; giveUpGraceMs?: number } = {},
): Promise<number> {
  let link = null as HostLink | null;
  let graceMs = 0;
  const ending = Promise.withResolvers<number>();
  const note = (line: string) => {
    process.stderr.write(`berth: ${line}\n`);
    link?.log(`berth: ${line}`);
  };
  const open = (loopback: Loopback, begunMs: number): HostLink =>
    (link = new HostLink({
      path: paths.controlSocket,
      ...(maxAwayMs !== undefined && { maxAwayMs }),
      openExec: async (send) => {
        const { ExecStreams } = await import('./exec.ts');
        const log = (line: string) => link?.log(line);
        return new ExecStreams({ send, env: loopback.childEnv, workspace: paths.workspace, log, begunMs });
      },
      onGiveUp(why) {
        note(why);
        graceMs = giveUpGraceMs;
        ending.resolve(noHostCode);
      },
    }));
  try {
    return await Promise.race([serve(paths, env, { note, open, end: ending.resolve }), ending.promise]);
  } catch (error) {
    if (!(error instanceof LaunchError)) throw error;
    note(error.message);
    return error.exitCode;
  } finally {
    const { endOthers } = await import('./others.ts');
    await endOthers(graceMs);
    await link?.logged(logMs);
  }
}

interface Around {
  note: Note;
  open: (loopback: Loopback, begunMs: number) => HostLink;
  end: (code: number) => void;
}

async function serve(paths: Paths, env: NodeJS.ProcessEnv, { note, open, end }: Around): Promise<number> {
  const settings = readSettings(env);
  const begunMs = performance.now();
  if (process.ppid === 1) await initHasClosed('/proc/1/fd');
  const loopback = new Loopback(settings, paths.gatewaySocket, env);
  // Before anything is said, so that the service hears it when it is dialled: the owner reads the sandbox's log.
  const link = open(loopback, begunMs);
  syncWorkspace({ ...paths, commit: settings.commit, note });
  process.stderr.on('error', () => undefined);
  // Only the branch that is taken is loaded: it counts at every start of a sandbox.
  if (settings.command) {
    process.on('uncaughtException', (error) => {
      note(error.stack ?? String(error));
      end(fatalCode);
    });
    const { runCustom } = await import('./custom.ts');
    const running = runCustom(settings.command, paths.workspace, await loopback.childEnv(), link);
    link.dial();
    const code = await running;
    await new Promise((resolve) => setTimeout(resolve, lingerMs));
    return code;
  }
  keepRunning(note);
  endOnSignals(end);
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
}

/** A command of its own is told of them instead, and ends when it wants to. */
function endOnSignals(end: (code: number) => void): void {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
    process.on(signal, () => end(128 + constants.signals[signal]));
}

/** One conversation's error must not end the others. */
function keepRunning(note: Note): void {
  process.on('uncaughtException', (error) => note(error.stack ?? String(error)));
  process.on('unhandledRejection', (error) =>
    note(error instanceof Error ? (error.stack ?? '') : String(error)),
  );
}
