import { requireEdit } from '../domain/access.ts';
import { DomainError } from '../domain/errors.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import { lastSandboxes, type LastSandbox } from '../store/sandbox-rows.ts';
import type { Sandbox, SandboxesService, SandboxState } from './api.ts';
import { pageById } from './paging.ts';
import type { HostedSandbox, HostedState, SandboxHost } from './sandbox-host.ts';
import { visibleAgent, whileThere } from './visible-agent.ts';

export interface SandboxesDependencies {
  db: Database;
  agents: AgentStore;
  cursors: Cursors;
  host: SandboxHost;
  nodeId: string;
}

/** States in which a sandbox is somewhere. */
const live: ReadonlySet<SandboxState> = new Set(['starting', 'running', 'stopping']);

export function createSandboxes(deps: SandboxesDependencies): SandboxesService {
  const { db, agents, cursors, host, nodeId } = deps;

  /** What this host knows wins, as long as no other one has the agent. */
  async function viewOf(agentId: string, last: LastSandbox | null): Promise<Sandbox> {
    const elsewhere = last !== null && last.nodeId !== nodeId && live.has(last.state);
    const hosted = elsewhere ? null : await host.state(agentId);
    return hosted === null || hosted.state === 'stopped'
      ? ended(agentId, last, hosted)
      : running(hosted, last);
  }

  function running(hosted: HostedSandbox, last: LastSandbox | null): Sandbox {
    const { stats } = hosted;
    return {
      agentId: hosted.agentId,
      state: stateOf(hosted.state),
      isFrozen: hosted.state === 'frozen',
      sandboxId: hosted.sandboxId,
      nodeId,
      since: hosted.since,
      runningTurns: hosted.runningTurns,
      use: stats && { cpuMicros: stats.cpuMicros, memoryBytes: stats.memoryBytes, processes: stats.pids },
      costMicros: last?.id === hosted.sandboxId ? (last?.costMicros ?? 0n) : 0n,
      reason: hosted.reason,
    };
  }

  async function one(agentId: string): Promise<Sandbox> {
    const [last] = await lastSandboxes(db, [agentId]);
    return viewOf(agentId, last ?? null);
  }

  /** Checks, acts, and answers with what came of it. */
  const change =
    (act: (agentId: string) => Promise<unknown>) =>
    async (p: Principal, agentId: string): Promise<Sandbox> => {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const [last] = await lastSandboxes(db, [agentId]);
      if (last && last.nodeId !== nodeId && live.has(last.state))
        throw new DomainError('conflict', `The sandbox is on the node ${last.nodeId}; ask that one.`);
      await whileThere(agents, agentId, () => act(agentId));
      return one(agentId);
    };

  return {
    async list(p, query) {
      const page = await pageById(cursors, `sandboxes:${p.orgId}`, query, (at) =>
        agents.list(p.orgId, { ...at, only: p.agentId }),
      );
      const last = new Map(
        (
          await lastSandboxes(
            db,
            page.items.map(({ id }) => id),
          )
        ).map((row) => [row.agentId, row]),
      );
      const items = await Promise.all(page.items.map(({ id }) => viewOf(id, last.get(id) ?? null)));
      return { ...page, items };
    },

    async get(p, agentId) {
      await visibleAgent(agents, p, agentId);
      return one(agentId);
    },

    start: change((agentId) => host.start(agentId)),
    stop: change((agentId) => host.stop(agentId)),
    restart: change((agentId) => host.restart(agentId)),
    kill: change((agentId) => host.kill(agentId)),
  };
}

/** By its row: it is on another node, or has ended. */
function ended(agentId: string, last: LastSandbox | null, hosted: HostedSandbox | null): Sandbox {
  return {
    agentId,
    state: last === null ? 'stopped' : hosted !== null && live.has(last.state) ? 'stopped' : last.state,
    isFrozen: false,
    sandboxId: last?.id ?? null,
    nodeId: last?.nodeId ?? null,
    since: last === null ? null : (last.stoppedAt ?? last.createdAt),
    runningTurns: 0,
    use: null,
    costMicros: last?.costMicros ?? 0n,
    reason: last?.reason ?? hosted?.reason ?? null,
  };
}

function stateOf(state: HostedState): SandboxState {
  return state === 'frozen' ? 'running' : state;
}
