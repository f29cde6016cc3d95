import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid } from '../domain/errors.ts';
import { preconditionFailed, requirePreconditions, type Preconditions } from '../domain/preconditions.ts';
import { limits } from '../domain/limits.ts';
import type { Agent, Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { pageOf } from '../domain/paging.ts';
import type { SandboxDriver } from '../domain/ports/sandbox.ts';
import type { VolumeEntry, VolumePath, Volumes } from '../domain/ports/volume.ts';
import type { AgentStore } from '../store/agents.ts';
import type { DeploymentStore } from '../store/deployments.ts';
import { agentVolume, type AgentVolumeDependencies } from './agent-volume.ts';
import type { SandboxFilesService, Upload } from './api.ts';
import { Places } from './places.ts';
import { visibleAgent } from './visible-agent.ts';

export interface SandboxFilesDependencies extends AgentVolumeDependencies {
  agents: AgentStore;
  deployments: Pick<DeploymentStore, 'activeOf'>;
  cursors: Cursors;
  driver: Pick<SandboxDriver, 'prepareVolume' | 'volumeUse'>;
  volumes: Volumes;
  /** The installation's limit; an agent's manifest may ask for less. */
  diskBytes: number;
}

/** A file system gives about one inode for so many bytes; the same share as the driver's watch gives. */
const BYTES_AN_ENTRY = 4096;
const ENTRIES_MIN = 20_000;
/** Volumes are measured again after so long; in between what was put there is counted. */
const MEASURED_MS = 5_000;

export function createSandboxFiles(deps: SandboxFilesDependencies): SandboxFilesService {
  const { agents, cursors, volumes } = deps;
  const room = createRoom(deps);
  const archives = createArchiveCount();

  async function seen(p: Principal, agentId: string): Promise<{ agent: Agent; volumeDir: string }> {
    const agent = await visibleAgent(agents, p, agentId);
    return { agent, volumeDir: await agentVolume(deps, agent) };
  }

  async function changed(p: Principal, agentId: string): Promise<{ agent: Agent; volumeDir: string }> {
    await visibleAgent(agents, p, agentId);
    requireEdit(p);
    return seen(p, agentId);
  }

  const checking = (preconditions: Preconditions) => (present: VolumeEntry | null) =>
    requirePreconditions(preconditions, present && { tag: present.type === 'file' ? present.version : null });

  /** Before an upload, which would be in vain. */
  async function checkNow(volumeDir: string, path: VolumePath, preconditions: Preconditions): Promise<void> {
    if (preconditions.match === null && preconditions.noneMatch === null) return;
    const present = await volumes.stat(volumeDir, path).catch((error: unknown) => {
      if (error instanceof DomainError && error.code === 'not_found') return null;
      throw error;
    });
    checking(preconditions)(present);
  }

  return {
    async stat(p, agentId, path) {
      return volumes.stat((await seen(p, agentId)).volumeDir, path);
    },

    async open(p, agentId, path) {
      return volumes.open((await seen(p, agentId)).volumeDir, path);
    },

    async list(p, agentId, path, query) {
      const { agent, volumeDir } = await seen(p, agentId);
      if (query.limit < 1 || query.limit > limits.pageMax)
        throw invalid('limit', `must be a whole number from 1 to ${limits.pageMax}.`);
      const list = `files:${agent.id}:${path.tree}/${Buffer.concat(path.names.flatMap((name) => [name, slash])).toString('hex')}`;
      const after = query.cursor === null ? null : Buffer.from(cursors.decode(list, query.cursor), 'latin1');
      const found = await volumes.list(volumeDir, path, { after, limit: query.limit + 1 });
      return pageOf(found, query, ({ name }) => name.toString('latin1'), cursors, list);
    },

    async archive(p, agentId, path) {
      const { agent, volumeDir } = await seen(p, agentId);
      const leave = archives.enter(agent);
      try {
        return (await volumes.archive(volumeDir, path)).once('close', leave);
      } catch (error) {
        leave();
        throw error;
      }
    },

    async write(p, agentId, path, upload, { mode, preconditions }) {
      const { agent, volumeDir } = await changed(p, agentId);
      await checkNow(volumeDir, path, preconditions);
      const free = await room.check(agent, volumeDir, upload);
      return room.fill(volumeDir, free, upload.content, async (content) => {
        const check = checking(preconditions);
        const made = await volumes.write(volumeDir, path, content, { maxBytes: free.bytes, mode, check });
        room.took(volumeDir, made.entry.sizeBytes, 1);
        return made;
      });
    },

    async makeFolder(p, agentId, path, preconditions) {
      const { agent, volumeDir } = await changed(p, agentId);
      await checkNow(volumeDir, path, preconditions);
      await room.check(agent, volumeDir, { bytes: 0, content: nothing() });
      const made = await volumes.makeFolder(volumeDir, path);
      room.took(volumeDir, 0, path.names.length);
      // Of two that ask for a folder that is not there yet, one makes it.
      if (!made && preconditions.noneMatch === '*') throw preconditionFailed();
      return made;
    },

    async unpack(p, agentId, path, upload, preconditions) {
      const { agent, volumeDir } = await changed(p, agentId);
      await checkNow(volumeDir, path, preconditions);
      const free = await room.check(agent, volumeDir, { ...upload, bytes: null });
      return room.fill(volumeDir, free, upload.content, async (content) => {
        const sum = await volumes.unpack(volumeDir, path, content, {
          maxBytes: free.bytes,
          maxEntries: free.entries,
        });
        room.took(volumeDir, sum.bytes, sum.entries);
        return sum;
      });
    },

    async remove(p, agentId, path, { recursive, preconditions }) {
      const { volumeDir } = await changed(p, agentId);
      await volumes.remove(volumeDir, path, recursive, checking(preconditions));
      room.forget(volumeDir);
    },
  };
}

/** Reading an archive slowly holds a descriptor for each folder that it is in. */
function createArchiveCount() {
  const places = new Places('archives are read', limits.archives);
  return {
    /** Returns what is to be called, once or more often, when it has ended. */
    enter({ id, orgId }: Agent): () => void {
      const refusal = places.refusal(id, orgId);
      if (refusal !== null) throw new DomainError('too_many_sandboxes', refusal, { retryAfterSeconds: 5 });
      return places.take(id, orgId);
    },
  };
}

const slash = Buffer.from('/');
async function* nothing(): AsyncGenerator<Buffer> {}

interface Room {
  bytes: number;
  entries: number;
  limit: number;
}

/** What may still be put into a volume before it reaches the disk limit of its sandbox. */
function createRoom(deps: SandboxFilesDependencies) {
  const measured = new Map<string, { at: number; bytes: number; entries: number }>();
  /** What uploads that are under way have brought so far: many at once have no more room than one. */
  const arriving = new Map<string, number>();

  async function* counted(
    volumeDir: string,
    room: Room,
    content: AsyncIterable<Buffer>,
    mine: { bytes: number },
  ) {
    for await (const piece of content) {
      mine.bytes += piece.length;
      const all = (arriving.get(volumeDir) ?? 0) + piece.length;
      arriving.set(volumeDir, all);
      const used = measured.get(volumeDir)?.bytes ?? room.limit - room.bytes;
      // What one brings alone is judged by whoever writes it.
      if (all > mine.bytes && used + all > room.limit)
        throw new DomainError('body_too_large', 'Other uploads under way fill the disk of the sandbox.');
      yield piece;
    }
  }

  async function useOf(volumeDir: string): Promise<{ bytes: number; entries: number }> {
    const known = measured.get(volumeDir);
    if (known && Date.now() - known.at < MEASURED_MS) return known;
    for (const [path, { at }] of measured) if (Date.now() - at >= MEASURED_MS) measured.delete(path);
    const use = { at: Date.now(), ...(await deps.driver.volumeUse(volumeDir)) };
    measured.set(volumeDir, use);
    return use;
  }

  async function limitOf(agent: Agent): Promise<number> {
    const asked = (await deps.deployments.activeOf(agent.id))?.manifest.limits.diskMb;
    return Math.min(deps.diskBytes, asked === undefined ? Infinity : asked * 1024 * 1024);
  }

  return {
    async check(agent: Agent, volumeDir: string, upload: Upload): Promise<Room> {
      const limit = await limitOf(agent);
      const use = await useOf(volumeDir);
      const bytes = Math.max(0, limit - use.bytes);
      const mostEntries = Math.max(ENTRIES_MIN, Math.floor(limit / BYTES_AN_ENTRY));
      const entries = mostEntries - use.entries;
      if (bytes === 0)
        throw new DomainError(
          'body_too_large',
          'The disk of the sandbox is full; delete something there first.',
        );
      if (entries <= 0)
        throw new DomainError(
          'body_too_large',
          `The sandbox has ${use.entries} files and folders, and may have ${mostEntries}; delete some of them first.`,
        );
      if ((upload.bytes ?? 0) > bytes)
        throw new DomainError('body_too_large', `There is room for ${bytes} bytes in the sandbox.`);
      return { bytes, entries, limit };
    },

    /** Passes on what an upload brings, and counts it as long as it is under way. */
    async fill<T>(
      volumeDir: string,
      room: Room,
      content: AsyncIterable<Buffer>,
      work: (content: AsyncIterable<Buffer>) => Promise<T>,
    ): Promise<T> {
      const mine = { bytes: 0 };
      try {
        return await work(counted(volumeDir, room, content, mine));
      } finally {
        const left = (arriving.get(volumeDir) ?? 0) - mine.bytes;
        if (left > 0) arriving.set(volumeDir, left);
        else arriving.delete(volumeDir);
      }
    },

    took(volumeDir: string, bytes: number, entries: number): void {
      const known = measured.get(volumeDir);
      if (!known) return;
      known.bytes += bytes;
      known.entries += entries;
    },

    forget: (volumeDir: string) => void measured.delete(volumeDir),
  };
}
