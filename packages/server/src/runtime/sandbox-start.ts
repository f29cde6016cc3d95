import { createHash, randomBytes } from 'node:crypto';
import { mkdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../domain/log.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { Egress, SandboxEgress } from '../domain/ports/egress.ts';
import type {
  HarnessConnection,
  HarnessLaunch,
  HarnessLaunchInput,
  HarnessLink,
  OpenHarnessLink,
  SandboxLogLines,
} from '../domain/ports/harness.ts';
import type { ModelCaller, ModelGateway, ModelWire } from '../domain/ports/model-gateway.ts';
import type { Repos } from '../domain/ports/repos.ts';
import type {
  BlankSandbox,
  RunningSandbox,
  SandboxDriver,
  SandboxLimits,
  SandboxSpec,
} from '../domain/ports/sandbox.ts';
import type { SandboxRecords } from '../services/sandbox-records.ts';
import { connectionsOfOne, openGatewaySocket } from './gateway-socket.ts';
import { startFailed } from './last-logs.ts';

/** What a sandbox of an agent is started for. */
export interface SandboxWish {
  agentId: string;
  orgId: string;
  slot: number;
  model: string;
  generation: number;
  deployment: { id: string; commit: string; manifest: Manifest };
  /** A start of it was ended for a newer deployment once, and is not again: each would cost that one its sandbox. */
  hasGivenWay?: boolean;
}

/** `message` is safe to show: it becomes the error of the runs that waited. */
export class SandboxStartError extends Error {
  /** The disk of the service is full: nothing is wrong with the agent, and there may be room again. */
  readonly isHostFull: boolean;

  constructor(message: string, isHostFull: boolean, cause: unknown) {
    super(message, { cause });
    this.isHostFull = isHostFull;
  }
}

export interface StartDependencies {
  nodeId: string;
  driver: SandboxDriver;
  openLink: OpenHarnessLink;
  /** Whether sandboxes live on when the service ends, for the next process of this node. */
  isDetached: boolean;
  /** What runs in the sandbox (docs/design/sandbox-launch.md). */
  launch: (input: HarnessLaunchInput) => HarnessLaunch;
  gateway: () => ModelGateway;
  repos: Pick<Repos, 'writeArchive'>;
  secrets: {
    valuesForSandbox(agentId: string): Promise<Record<string, string>>;
    modelKeys(agentId: string): Promise<Record<string, string>>;
  };
  records: SandboxRecords;
  egress: Pick<Egress, 'open'>;
  limits: { memoryMb: number; cpus: number; pids: number; diskMb: number };
  paths: { volumes: string; run: string };
  /** Connections to the model gateway of all sandboxes together. */
  maxModelConnections: number;
  log: Log;
  /** For tests: what is free on the disk of a folder. */
  freeBytes?: (path: string) => Promise<number>;
}

export interface StartedSandbox {
  id: string;
  sandbox: RunningSandbox;
  link: HarnessLink;
  connection: HarnessConnection;
  /** Ends what this process has of it, and leaves it running. */
  leave(): void;
  /** After the process tree is gone: the socket, the folder and the row of it. */
  cleanUp(state: 'stopped' | 'failed', reason: string): Promise<void>;
}

/** A large repository is unpacked before the harness answers. */
export const INITIALIZE_MS = 60_000;
const OPEN_FILES = 4_096;
const MIB = 1024 * 1024;
/** A disk with less is taken for full when something could not be written. */
const FULL_BYTES = 16 * MIB;
const HOST_FULL = 'The disk of the service is full.';

export function sandboxLimits(own: StartDependencies['limits'], manifest: Manifest): SandboxLimits {
  const asked = manifest.limits;
  const atMost = (limit: number, wanted: number | undefined) => Math.min(limit, wanted ?? limit);
  return {
    memoryBytes: atMost(own.memoryMb, asked.memoryMb) * MIB,
    cpus: atMost(own.cpus, asked.cpus),
    pids: atMost(own.pids, asked.pids),
    diskBytes: atMost(own.diskMb, asked.diskMb) * MIB,
    openFiles: OPEN_FILES,
  };
}

export interface Sockets {
  link: HarnessLink;
  egress: SandboxEgress;
  close(): void;
}

/** What of a sandbox is of this process: its sockets, in its run directory. A later process opens them anew. */
export async function openSockets(
  deps: StartDependencies,
  runDir: string,
  caller: ModelCaller,
): Promise<Sockets> {
  const { orgId, agentId, sandboxId } = caller;
  const opened: (() => void)[] = [];
  // First the channel: a harness whose model call is cut off then knows that the service is going.
  const close = () =>
    opened
      .splice(0)
      .toReversed()
      .forEach((end) => end());
  try {
    const gatewayPath = join(runDir, 'gateway.sock');
    const gateway = await openGatewaySocket(gatewayPath, deps.gateway(), caller, deps.maxModelConnections);
    opened.push(() => gateway.close());
    const egress = await deps.egress.open({ orgId, agentId, sandboxId }, runDir);
    opened.push(() => egress.close());
    const link = await deps.openLink({ socketPath: join(runDir, 'control.sock'), sandboxId });
    opened.push(() => link.leave());
    return { link, egress, close };
  } catch (error) {
    close();
    throw error;
  }
}

export interface StartPlace {
  id: string;
  /** One that was kept ready, of this id. */
  blank: BlankSandbox | null;
  /** Told of its log before anything runs in it. */
  onLog: (log: SandboxLogLines) => void;
  /** Nobody waits for it any more: it is ended, also while its harness has not answered yet. */
  given: AbortSignal;
}

/** Starts a sandbox with its harness, or rejects with SandboxStartError and leaves nothing behind. */
export async function startSandbox(
  deps: StartDependencies,
  wish: SandboxWish,
  { id, blank, onLog, given }: StartPlace,
): Promise<StartedSandbox> {
  const { records, log } = deps;
  const token = randomBytes(32).toString('base64url');
  const tokenHash = createHash('sha256').update(token).digest('base64url');
  const runDir = join(deps.paths.run, id);
  let sockets: Sockets | null = null;
  let sandbox: RunningSandbox | null = null;

  const cleanUp = cleaner(deps, id, () => sockets?.close());
  const end = (): void => void sandbox?.kill().catch(() => undefined);
  given.addEventListener('abort', end, { once: true });
  try {
    const { agentId, orgId, deployment, model, generation } = wish;
    const isWanted = await records.starting({
      id,
      orgId,
      agentId,
      nodeId: deps.nodeId,
      driver: deps.driver.name,
      deploymentId: deployment.id,
      model,
      generation,
      tokenHash,
    });
    if (!isWanted) throw new SandboxStartError('Its agent was deleted.', false, null);
    await mkdir(runDir, { recursive: true, mode: 0o755 });
    const [secrets, secretKeys] = await Promise.all([
      deps.secrets.valuesForSandbox(agentId),
      deps.secrets.modelKeys(agentId),
      deps.repos.writeArchive(agentId, deployment.commit, join(runDir, 'release.tar')),
    ]);
    const caller = { orgId, agentId, sandboxId: id, model, tokenHash, secretKeys };
    sockets = await openSockets(deps, runDir, caller);
    const { egress, link } = sockets;
    onLog(link.log);
    const limits = sandboxLimits(deps.limits, deployment.manifest);
    const launch = deps.launch({
      agentId,
      commit: deployment.commit,
      model,
      wire: wireOf(deps.gateway(), model),
      token,
      command: deployment.manifest.command,
      instructions: deployment.manifest.instructions,
      secrets,
      modelConnections: connectionsOfOne(deps.maxModelConnections),
      withheldSecrets: Object.keys(secretKeys),
      memoryBytes: limits.memoryBytes,
    });
    const volumeDir = join(deps.paths.volumes, agentId);
    const spec: SandboxSpec = {
      id,
      slot: wish.slot,
      volumeDir,
      runDir,
      ...launch,
      env: { ...launch.env, ...egress.env },
      limits,
      detached: deps.isDetached,
      transparentEgress: egress.transparent,
    };
    given.throwIfAborted();
    // One that cannot be this agent's has made room for one that is started for it.
    sandbox = (await blank?.claim(spec)) ?? (await deps.driver.start(spec));
    if (given.aborted) end();
    const connection = await link.connect(sandbox, { initializeTimeoutMs: INITIALIZE_MS });
    await records.running(id);
    return { id, sandbox, link, connection, leave: sockets.close, cleanUp };
  } catch (error) {
    log.warn('A sandbox did not start.', { sandboxId: id, agentId: wish.agentId, error: String(error) });
    await (sandbox ? sandbox.kill() : blank?.discard())?.catch(() => undefined);
    // One that was ended says by what; a failure that came of it says nothing.
    const failed = await startErrorOf(deps, given.aborted ? given.reason : error);
    await cleanUpFailed(log, { id, link: sockets?.link ?? null, cleanUp }, failed);
    throw failed;
  } finally {
    given.removeEventListener('abort', end);
  }
}

async function startErrorOf(deps: StartDependencies, error: unknown): Promise<SandboxStartError> {
  if (error instanceof SandboxStartError) return error;
  // Programs say in many ways that there is no room, some of them not at all.
  const isHostFull = await isFull(deps);
  return new SandboxStartError(isHostFull ? HOST_FULL : reasonOf(error), isHostFull, error);
}

/** The disk of an agent may be full as well, and is no reason to wait for another. */
async function isFull({ paths, freeBytes = freeOnDisk }: StartDependencies): Promise<boolean> {
  const free = await Promise.all(
    [paths.run, paths.volumes].map((path) => freeBytes(path).catch(() => Infinity)),
  );
  return Math.min(...free) < FULL_BYTES;
}

async function freeOnDisk(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/** What is to be done after the process tree of a sandbox is gone. */
export function cleaner(deps: StartDependencies, id: string, close: () => void): StartedSandbox['cleanUp'] {
  return async (state, reason) => {
    close();
    await rm(join(deps.paths.run, id), { recursive: true, force: true });
    await deps.records.ended(id, state, reason);
  };
}

/** After a start that failed, once its processes are gone. Never rejects. */
export async function cleanUpFailed(
  log: Log,
  { id, link, cleanUp }: { id: string; link: HarnessLink | null; cleanUp: StartedSandbox['cleanUp'] },
  error: unknown,
): Promise<void> {
  const reason = reasonOf(error);
  // Before its sockets are closed: whoever follows the log reads it last.
  link?.log.note(startFailed(reason));
  await cleanUp('failed', reason).catch((failure: unknown) =>
    log.error('What was left of a sandbox could not be removed.', { sandboxId: id, error: String(failure) }),
  );
}

function wireOf(gateway: ModelGateway, model: string): ModelWire {
  const name = model.slice(0, model.indexOf('/'));
  // An unknown provider is refused by the gateway at the first call, with a text that says so.
  return gateway.providers().find((provider) => provider.name === name)?.wire ?? 'openai-chat';
}

/** Errors of the harness and of repositories are made to be shown; others stay in the log. */
function reasonOf(error: unknown): string {
  const isShown = error instanceof Error && (error.name === 'HarnessError' || error.name === 'RepoError');
  return isShown || error instanceof SandboxStartError
    ? error.message
    : 'The sandbox could not be started; the log of the service says why, and `berth doctor` what to do.';
}
