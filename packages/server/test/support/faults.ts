import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { HELPER_VARIABLE } from '../../src/sandbox/helper.ts';
import { isRunning, statFields } from '../../src/sandbox/processes.ts';
import { fillDisk, grow } from './full-disk.ts';
import { hostProcesses } from './scenario.ts';
import type { Service } from './service.ts';

/**
 * `service`: SIGKILL and a new start. `restart`: SIGTERM and a new start. `stall`: the service stands still for longer than
 * its lease. `monitor`, `init`: SIGKILL of the process outside that watches over a sandbox, and of its first one inside.
 * `inside`: SIGKILL of any process in a sandbox, the launcher among them. `freeze`: one of those stands still for a while.
 * `helper`: SIGKILL of the process of the service that launches sandboxes, sets limits and mounts. `still`: it stands still, for a while or for
 * ever. `delete`: an agent is deleted, and sometimes the service is killed meanwhile (`deleted-agents.ts`). `volume`: the disk of an agent is full for a while. `disk`: that of the service is, and sometimes it is killed meanwhile.
 */
export const faults = [
  'service',
  'restart',
  'stall',
  'monitor',
  'init',
  'inside',
  'freeze',
  'helper',
  'still',
  'volume',
  'disk',
  'delete',
] as const;
export type Fault = (typeof faults)[number];
/** Those that are made from outside of the service alone. */
export type Strike = Exclude<Fault, 'delete'>;

/** Of the service, so that it can be filled in a moment; and of an agent. */
export const SERVICE_DISK_MIB = 1_500;
export const AGENT_DISK_MIB = 64;
/** Enough for a turn to meet it, and for the watch over a volume to find it. */
const FULL_MS = 2_000;

const STALL_MS = 2_500;
const FREEZE_MS = 800;

interface Found {
  initPid: number;
  initSince: string;
  monitorPid: number;
  monitorSince: string;
}

/** Makes a fault. Resolves when the service runs again; false when there was nothing to hit. */
export async function strike(service: Service, fault: Strike, draw: () => number): Promise<boolean> {
  if (fault === 'service') await service.kill9();
  if (fault === 'service' || fault === 'restart') {
    await service.restart();
    return true;
  }
  if (fault === 'stall') {
    process.kill(service.pid, 'SIGSTOP');
    await delay(STALL_MS);
    process.kill(service.pid, 'SIGCONT');
    return true;
  }
  if (fault === 'disk') return fullDisk(service, draw() < 0.3);
  if (fault === 'volume') return fullVolume(service, draw);
  if (fault === 'helper' || fault === 'still') return hitHelper(service, fault, draw() < 0.5);
  const sandbox = pick(detached(service), draw);
  if (!sandbox) return false;
  const target =
    fault === 'monitor'
      ? livingMonitor(sandbox)
      : fault === 'init'
        ? sandbox.initPid
        : pick(inside(sandbox.initPid), draw);
  if (target === undefined) return false;
  if (fault !== 'freeze') return send(target, 'SIGKILL');
  if (!send(target, 'SIGSTOP')) return false;
  await delay(FREEZE_MS);
  send(target, 'SIGCONT');
  return true;
}

async function hitHelper(service: Service, fault: 'helper' | 'still', goesOn: boolean): Promise<boolean> {
  const pid = helpersOf(service).find((helper) => parentOf(helper) === service.pid);
  if (pid === undefined) return false;
  if (fault === 'helper') return send(pid, 'SIGKILL');
  if (!send(pid, 'SIGSTOP')) return false;
  if (!goesOn) return true;
  await delay(FREEZE_MS);
  send(pid, 'SIGCONT');
  return true;
}

/** The name under which a service's sandboxes and their helper are known on the host. */
export const installation = (service: Service): string =>
  createHash('sha256').update(service.dataDir).digest('hex').slice(0, 12);

/** Those of this very process have looked at what there is. */
export function helpersOf(service: Service): number[] {
  const mark = `${HELPER_VARIABLE}=${installation(service)}\0`;
  return hostProcesses((_line, env) => env.includes(mark)).filter((pid) => parentOf(pid) !== process.pid);
}

/** 0 when it has ended. */
export const parentOf = (pid: number): number => Number(statFields(pid)?.[1] ?? 0);

async function fullDisk(service: Service, isKilled: boolean): Promise<boolean> {
  const ballast = join(service.dataDir, 'ballast');
  try {
    if (!(await fillDisk(ballast))) return false;
    await delay(FULL_MS);
    if (isKilled) await service.kill9();
  } finally {
    rmSync(ballast, { force: true });
  }
  if (isKilled) await service.restart();
  return true;
}

async function fullVolume(service: Service, draw: () => number): Promise<boolean> {
  const volumes = join(service.dataDir, 'volumes');
  const id = pick(
    tryOr(() => readdirSync(volumes), []),
    draw,
  );
  if (id === undefined) return false;
  const ballast = join(volumes, id, 'workspace', 'ballast');
  try {
    // Its file system has no room for so much, or the watch finds it over its limit.
    const hasGrown = await grow(ballast, (AGENT_DISK_MIB + 8) * 1024 * 1024);
    if (hasGrown) await delay(FULL_MS);
    return hasGrown;
  } finally {
    // A file system that was closed after an error takes no change; the next start mends it.
    tryOr(() => rmSync(ballast, { force: true }), undefined);
  }
}

function pick<T>(from: readonly T[], draw: () => number): T | undefined {
  return from[Math.floor(draw() * from.length)];
}

function send(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** A number of long ago may be another process's by now, on the whole host. */
const livingMonitor = ({ monitorPid, monitorSince }: Found): number | undefined =>
  isRunning(monitorPid, monitorSince) ? monitorPid : undefined;

/** What the driver wrote down of its detached sandboxes, of those whose first process lives. */
export function detached(service: Service): Found[] {
  const folder = join(service.dataDir, 'runtime', 'detached');
  const names = tryOr(() => readdirSync(folder), []);
  return names
    .filter((name) => name.endsWith('.json'))
    .flatMap((name) => {
      const record = tryOr(() => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Found, null);
      return record && isRunning(record.initPid, record.initSince) ? [record] : [];
    });
}

/** Pids, as this host sees them, of what runs in the PID namespace of a sandbox, without its init. */
function inside(initPid: number): number[] {
  const namespaceOf = (pid: number) => tryOr(() => readlinkSync(`/proc/${pid}/ns/pid`), null);
  const wanted = namespaceOf(initPid);
  if (wanted === null || wanted === namespaceOf(process.pid)) return [];
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => pid !== initPid && namespaceOf(pid) === wanted);
}

function tryOr<T>(work: () => T, otherwise: T): T {
  try {
    return work();
  } catch {
    return otherwise;
  }
}
