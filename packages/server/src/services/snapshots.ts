import { join } from 'node:path';
import { requireEdit } from '../domain/access.ts';
import { DomainError, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Agent, Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import type { Chunk, Snapshots } from '../domain/ports/volume.ts';
import type { AgentStore } from '../store/agents.ts';
import type { SnapshotRow, SnapshotStore } from '../store/snapshots.ts';
import { agentVolume, type AgentVolumeDependencies } from './agent-volume.ts';
import type { SnapshotsService } from './api.ts';
import { pageById } from './paging.ts';
import { createQueues } from './queues.ts';
import type { SandboxHost } from './sandbox-host.ts';
import { visibleAgent, whileThere } from './visible-agent.ts';

export interface SnapshotsDependencies extends AgentVolumeDependencies {
  agents: AgentStore;
  snapshots: SnapshotStore;
  store: Snapshots;
  cursors: Cursors;
  host: Pick<SandboxHost, 'quiesce'>;
  /** Each organisation has a folder of its own in it: what one has stored tells another nothing. */
  snapshotsDir: string;
  diskBytes: number;
}

/** Files of an agent that are held for a copy, and are no snapshot that anybody sees. */
export interface HeldFiles {
  /** Replaces the files of another agent of the organisation. Throws `conflict` while a turn is under way there. */
  copyTo(target: Agent): Promise<void>;
  release(): Promise<void>;
}

export interface SandboxSnapshots extends SnapshotsService {
  /** Of an agent that was deleted. */
  removeAll(agentId: string): Promise<void>;
  /** Access was checked. `look` is called when nothing of the agent runs, and what it throws ends it. */
  hold<T>(agent: Agent, look: () => Promise<T>): Promise<{ files: HeldFiles; seen: T }>;
}

/** Sparse files count by their length in an archive, so that it may be larger than the disk limit. */
const ARCHIVE_FACTOR = 4;
const ENTRIES_MAX = 1_000_000;

export function createSnapshots(deps: SnapshotsDependencies): SandboxSnapshots {
  const { agents, snapshots, store, cursors, host } = deps;
  const inOrder = createQueues();
  /** Those that are being restored: what is deleted meanwhile stays until they were read. */
  const inUse = new Set<{ chunks: Chunk[] }>();
  const storeOf = (orgId: string) => join(deps.snapshotsDir, orgId);
  const maxBytes = deps.diskBytes * ARCHIVE_FACTOR;

  const quiesce: typeof host.quiesce = (agentId, how, work) =>
    whileThere(agents, agentId, () => host.quiesce(agentId, how, work));

  async function editable(p: Principal, agentId: string): Promise<Agent> {
    const agent = await visibleAgent(agents, p, agentId);
    requireEdit(p);
    return agent;
  }

  async function existing(agentId: string, id: string): Promise<SnapshotRow> {
    const found = isId(id) ? await snapshots.get(agentId, id) : null;
    if (!found) throw notFound();
    return found;
  }

  async function replaceFiles(
    target: Agent,
    orgId: string,
    saved: { chunks: Chunk[]; bytes: number },
    check?: () => Promise<unknown>,
  ): Promise<void> {
    const volumeDir = await agentVolume(deps, target);
    const room = { maxBytes: Math.max(maxBytes, saved.bytes * 2), maxEntries: ENTRIES_MAX };
    await quiesce(target.id, 'stopped', async () => {
      await check?.();
      // Its deletion waits for what is done here, and not for what only waits.
      if (!(await agents.get(target.id))) throw notFound();
      await store.restore(storeOf(orgId), volumeDir, saved.chunks, room);
    });
  }

  /** Saves and sweeps of an organisation follow each other: a sweep must not take what a save relies on. */
  const sweep = (orgId: string) => inOrder(orgId, () => sweepNow(orgId));

  async function sweepNow(orgId: string): Promise<void> {
    const kept = await snapshots.hashesOf(orgId);
    for (const { chunks } of inUse) for (const { hash } of chunks) kept.add(hash);
    await store.sweep(storeOf(orgId), kept);
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      return pageById(cursors, `snapshots:${agentId}`, query, (at) => snapshots.list(agentId, at));
    },

    async get(p, agentId, id) {
      await visibleAgent(agents, p, agentId);
      return existing(agentId, id);
    },

    async create(p, agentId, { name = '' }) {
      const agent = await editable(p, agentId);
      const volumeDir = await agentVolume(deps, agent);
      return inOrder(agent.orgId, async () => {
        // Counted in the queue: of many that are asked for at once, only so many are let through.
        if ((await snapshots.countOf(agentId)) >= limits.snapshotsPerAgent)
          throw new DomainError(
            'conflict',
            `An agent has at most ${limits.snapshotsPerAgent} snapshots; delete one first.`,
          );
        const saved = await quiesce(agentId, 'frozen', () =>
          store.save(storeOf(agent.orgId), volumeDir, maxBytes),
        );
        const row = await snapshots.insert({ id: newId(), orgId: agent.orgId, agentId, name, ...saved });
        if (await agents.get(agentId)) return row;
        // The agent was deleted meanwhile, and its snapshots before this one was there.
        await snapshots.remove(agentId, row.id);
        await sweepNow(agent.orgId);
        throw notFound();
      });
    },

    async restore(p, agentId, id, { toAgentId = agentId }) {
      const { orgId } = await editable(p, agentId);
      const snapshot = await existing(agentId, id);
      const target = await editable(p, toAgentId);
      const saved = { bytes: snapshot.bytes, chunks: (await snapshots.chunksOf(agentId, id)) ?? [] };
      inUse.add(saved);
      try {
        // It may have been deleted before it was in use, or while this waited.
        await replaceFiles(target, orgId, saved, () => existing(agentId, id));
      } finally {
        inUse.delete(saved);
        if (!(await snapshots.get(agentId, id))) await sweep(orgId);
      }
      return snapshot;
    },

    async remove(p, agentId, id) {
      const { orgId } = await editable(p, agentId);
      await existing(agentId, id);
      await snapshots.remove(agentId, id);
      await sweep(orgId);
    },

    async removeAll(agentId) {
      const orgId = await snapshots.removeAllOf(agentId);
      if (orgId !== null) await sweep(orgId);
    },

    async hold(agent, look) {
      const { orgId } = agent;
      const volumeDir = await agentVolume(deps, agent);
      // In use from within the queue on: a sweep that follows leaves it.
      const { saved, seen } = await inOrder(orgId, async () => {
        const held = await quiesce(agent.id, 'frozen', async () => ({
          seen: await look(),
          saved: await store.save(storeOf(orgId), volumeDir, maxBytes),
        }));
        inUse.add(held.saved);
        return held;
      });
      const files = {
        copyTo: (target: Agent) => replaceFiles(target, orgId, saved),
        async release() {
          inUse.delete(saved);
          await sweep(orgId);
        },
      };
      return { files, seen };
    },
  };
}
