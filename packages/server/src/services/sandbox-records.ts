import type { Database } from '../store/database.ts';
import * as rows from '../store/sandbox-rows.ts';
import type { LiveSandboxRow, SandboxRow, SandboxTarget } from '../store/sandbox-rows.ts';

export type { LiveSandboxRow, SandboxRow } from '../store/sandbox-rows.ts';

/** What the keeper writes down about sandboxes, so that nothing on the host is without a row. */
export interface SandboxRecords {
  /** False: its agent was deleted, and nothing of it may be made any more. */
  starting(row: SandboxRow): Promise<boolean>;
  running(id: string): Promise<void>;
  ended(id: string, state: 'stopped' | 'failed', reason: string): Promise<void>;
  /** What a sandbox is started for beside its deployment; null when there is no such agent. */
  target(agentId: string): Promise<SandboxTarget | null>;
  /** What should run on a node. */
  live(nodeId: string): Promise<LiveSandboxRow[]>;
  /** Of a node, those that are not among the kept ones; resolves with their number. */
  othersEnded(nodeId: string, keptIds: string[], reason: string): Promise<number>;
  /** Another node may take the agent from now on. */
  releaseAgent(nodeId: string, agentId: string): Promise<void>;
}

export function createSandboxRecords(db: Database): SandboxRecords {
  return {
    starting: (row) => rows.insertSandbox(db, row),
    running: (id) => rows.markSandboxRunning(db, id),
    ended: (id, state, reason) => rows.markSandboxEnded(db, id, state, reason),
    target: (agentId) => rows.sandboxTarget(db, agentId),
    live: (nodeId) => rows.liveSandboxes(db, nodeId),
    othersEnded: (nodeId, keptIds, reason) => rows.markOtherSandboxesEnded(db, nodeId, keptIds, reason),
    releaseAgent: (nodeId, agentId) => rows.releaseAgent(db, nodeId, agentId),
  };
}
