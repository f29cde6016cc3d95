import type { VolumeEntry, VolumePath } from '../../domain/ports/volume.ts';
import { formatMicros } from '../../domain/money.ts';
import type { Sandbox } from '../../services/api.ts';
import { volumeHref } from '../http/volume-path.ts';
import { timeOrNull } from './agent.ts';

export function sandboxOf(sandbox: Sandbox) {
  const { use } = sandbox;
  return {
    agentId: sandbox.agentId,
    state: sandbox.state,
    frozen: sandbox.isFrozen,
    sandboxId: sandbox.sandboxId,
    node: sandbox.nodeId,
    since: timeOrNull(sandbox.since),
    cpuMicros: use && Math.round(use.cpuMicros),
    memoryBytes: use && Math.round(use.memoryBytes),
    processes: use && use.processes,
    runningTurns: sandbox.runningTurns,
    costSoFar: formatMicros(sandbox.costMicros),
    reason: sandbox.reason,
  };
}

/** `path` is its own. */
export function fileOf(agentId: string, path: VolumePath, entry: VolumeEntry) {
  const href = volumeHref(path);
  return {
    name: entry.name.toString('utf8'),
    href: `/sandbox/${agentId}/files/${href}${entry.type === 'folder' && href !== '' ? '/' : ''}`,
    type: entry.type,
    sizeBytes: entry.sizeBytes,
    mode: entry.mode.toString(8).padStart(3, '0'),
    modifiedAt: entry.modifiedAt.toISOString(),
    target: entry.target && entry.target.toString('utf8'),
    etag: entry.type === 'file' ? `"${entry.version}"` : null,
  };
}
