import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { RunningSandbox, SandboxDriver, SandboxSpec } from '../domain/ports/sandbox.ts';
import { trialOf } from './disk/image-file.ts';
import { TRIAL_DISK_BYTES } from './volumes.ts';

const MIB = 1024 * 1024;
const TRIAL_TIMEOUT_MS = 30_000;

export interface TrialRequest {
  driver: Pick<SandboxDriver, 'start' | 'removeVolume'> & Partial<Pick<SandboxDriver, 'prepare'>>;
  areaDir: string;
  isRoot: boolean;
  command: string[];
  /** A kernel in user space takes memory and threads for itself. */
  limits?: { memoryBytes: number; pids: number };
  transparentEgress?: boolean;
  /** Made before it is known whose it is. */
  isBlank?: boolean;
}

const SMALL = { memoryBytes: 128 * MIB, pids: 32 };

/** Runs a small program in a real sandbox and resolves with what it printed; rejects with the reason otherwise. */
export async function runTrial({
  driver,
  areaDir,
  isRoot,
  command,
  limits = SMALL,
  transparentEgress = false,
  isBlank = false,
}: TrialRequest): Promise<string> {
  const id = randomUUID();
  const folder = join(areaDir, `trial-${id}`);
  // Where it gets an image, that has the same name: others may be trying something, too.
  const volumeDir = join(folder, `${trialOf()}-${id}`);
  try {
    mkdirSync(folder, { recursive: true, mode: isRoot ? 0o711 : 0o700 });
    const spec: SandboxSpec = {
      id,
      slot: 0,
      volumeDir,
      runDir: join(folder, 'run'),
      binds: [],
      command,
      env: { PATH: '/usr/bin:/bin' },
      limits: { ...limits, cpus: 1, diskBytes: TRIAL_DISK_BYTES, openFiles: 64 },
      detached: false,
      transparentEgress,
    };
    const sandbox = isBlank ? await startBlank(driver, spec) : await driver.start(spec);
    const timer = setTimeout(() => void sandbox.kill(), TRIAL_TIMEOUT_MS);
    let printed = '';
    let said = '';
    sandbox.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()));
    sandbox.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
    const exit = await sandbox.exited;
    clearTimeout(timer);
    if (exit.reason !== 'exit' || exit.code !== 0)
      throw new Error(said.trim() || `it ended as ${exit.reason} with code ${exit.code}`);
    return printed;
  } finally {
    await driver.removeVolume(volumeDir).catch(() => null);
    removeQuietly(folder);
  }
}

async function startBlank(driver: TrialRequest['driver'], spec: SandboxSpec): Promise<RunningSandbox> {
  const { slot: _slot, volumeDir: _volumeDir, transparentEgress: _transparent, ...blank } = spec;
  const sandbox = await (await driver.prepare?.(blank))?.claim(spec);
  if (!sandbox) throw new Error('It could not be claimed.');
  return sandbox;
}

/** Where the folder could not be made, there is nothing to remove, and the failure says all. */
function removeQuietly(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true });
  } catch {
    // See above.
  }
}
