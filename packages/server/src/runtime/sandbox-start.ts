import { createHash, randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { Manifest } from '../domain/manifest.ts';
import type { Egress, SandboxEgress } from '../domain/ports/egress.ts';
import type {
  ConnectHarness,
  HarnessConnection,
  HarnessLaunch,
  HarnessLaunchInput,
} from '../domain/ports/harness.ts';
import type { ModelGateway, ModelWire } from '../domain/ports/model-gateway.ts';
import type { Repos } from '../domain/ports/repos.ts';
import type { RunningSandbox, SandboxDriver, SandboxLimits } from '../domain/ports/sandbox.ts';
import type { SandboxRecords } from '../services/sandbox-records.ts';
import { openGatewaySocket, type GatewaySocket } from './gateway-socket.ts';

/** What a sandbox of an agent is started for. */
export interface SandboxWish {
  agentId: string;
  orgId: string;
  slot: number;
  model: string;
  generation: number;
  deployment: { id: string; commit: string; manifest: Manifest };
}

/** `message` is safe to show: it becomes the error of the runs that waited. */
export class SandboxStartError extends Error {}

export interface StartDependencies {
  nodeId: string;
  driver: SandboxDriver;
  connect: ConnectHarness;
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
}

export interface StartedSandbox {
  id: string;
  sandbox: RunningSandbox;
  connection: HarnessConnection;
  /** After the process tree is gone: the socket, the folder and the row of it. */
  cleanUp(state: 'stopped' | 'failed', reason: string): Promise<void>;
}

/** A large repository is unpacked before the harness answers. */
const INITIALIZE_MS = 60_000;
const OPEN_FILES = 4_096;
const MIB = 1024 * 1024;

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

/** Starts a sandbox with its harness, or rejects with SandboxStartError and leaves nothing behind. */
export async function startSandbox(deps: StartDependencies, wish: SandboxWish): Promise<StartedSandbox> {
  const { records, log } = deps;
  const id = newId();
  const token = randomBytes(32).toString('base64url');
  const tokenHash = createHash('sha256').update(token).digest('base64url');
  const runDir = join(deps.paths.run, id);
  let socket: GatewaySocket | null = null;
  let egress: SandboxEgress | null = null;
  let sandbox: RunningSandbox | null = null;

  async function cleanUp(state: 'stopped' | 'failed', reason: string): Promise<void> {
    socket?.close();
    egress?.close();
    await rm(runDir, { recursive: true, force: true });
    await records.ended(id, state, reason);
  }

  try {
    const { agentId, orgId, deployment } = wish;
    await records.starting({
      id,
      orgId,
      agentId,
      nodeId: deps.nodeId,
      driver: deps.driver.name,
      deploymentId: deployment.id,
      tokenHash,
    });
    await mkdir(runDir, { recursive: true, mode: 0o755 });
    const gateway = deps.gateway();
    const [secrets, secretKeys] = await Promise.all([
      deps.secrets.valuesForSandbox(agentId),
      deps.secrets.modelKeys(agentId),
      deps.repos.writeArchive(agentId, deployment.commit, join(runDir, 'release.tar')),
    ]);
    const caller = { orgId, agentId, sandboxId: id, model: wish.model, tokenHash, secretKeys };
    socket = await openGatewaySocket(join(runDir, 'gateway.sock'), gateway, caller, deps.maxModelConnections);
    egress = await deps.egress.open({ orgId, agentId, sandboxId: id }, runDir);
    const limits = sandboxLimits(deps.limits, deployment.manifest);
    const launch = deps.launch({
      agentId,
      commit: deployment.commit,
      model: wish.model,
      wire: wireOf(gateway, wish.model),
      token,
      command: deployment.manifest.command,
      instructions: deployment.manifest.instructions,
      secrets,
      withheldSecrets: Object.keys(secretKeys),
      memoryBytes: limits.memoryBytes,
    });
    const volumeDir = join(deps.paths.volumes, agentId);
    sandbox = await deps.driver.start({
      id,
      slot: wish.slot,
      volumeDir,
      runDir,
      ...launch,
      env: { ...launch.env, ...egress.env },
      limits,
      detached: false,
      transparentEgress: egress.transparent,
    });
    const connection = await deps.connect(sandbox, { initializeTimeoutMs: INITIALIZE_MS });
    await records.running(id);
    return { id, sandbox, connection, cleanUp };
  } catch (error) {
    log.warn('A sandbox did not start.', { sandboxId: id, agentId: wish.agentId, error: String(error) });
    await sandbox?.kill().catch(() => undefined);
    await cleanUp('failed', reasonOf(error)).catch((failure: unknown) =>
      log.error('What was left of a sandbox could not be removed.', {
        sandboxId: id,
        error: String(failure),
      }),
    );
    throw new SandboxStartError(reasonOf(error), { cause: error });
  }
}

function wireOf(gateway: ModelGateway, model: string): ModelWire {
  const name = model.slice(0, model.indexOf('/'));
  // An unknown provider is refused by the gateway at the first call, with a text that says so.
  return gateway.providers().find((provider) => provider.name === name)?.wire ?? 'openai-chat';
}

/** Errors of the harness and of repositories are made to be shown; others stay in the log. */
function reasonOf(error: unknown): string {
  const isShown = error instanceof Error && (error.name === 'HarnessError' || error.name === 'RepoError');
  return isShown
    ? error.message
    : 'The sandbox could not be started; the log of the service says why, and `berth doctor` what to do.';
}
