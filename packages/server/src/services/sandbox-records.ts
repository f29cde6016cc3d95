import type { Database } from '../store/database.ts';
import * as rows from '../store/sandbox-rows.ts';
import type { SandboxRow, SandboxTarget } from '../store/sandbox-rows.ts';

export type { SandboxRow } from '../store/sandbox-rows.ts';

/** What the keeper writes down about sandboxes, so that nothing on the host is without a row. */
export interface SandboxRecords {
  starting(row: SandboxRow): Promise<void>;
  running(id: string): Promise<void>;
  ended(id: string, state: 'stopped' | 'failed', reason: string): Promise<void>;
  /** Those of an earlier process of this node. */
  allEnded(nodeId: string, reason: string): Promise<void>;
  /** What a sandbox is started for beside its deployment; null when there is no such agent. */
  target(agentId: string): Promise<SandboxTarget | null>;
  /** Another node may take the agent from now on. */
  releaseAgent(nodeId: string, agentId: string): Promise<void>;
}

export function createSandboxRecords(db: Database): SandboxRecords {
  return {
    starting: (row) => rows.insertSandbox(db, row),
    running: (id) => rows.markSandboxRunning(db, id),
    ended: (id, state, reason) => rows.markSandboxEnded(db, id, state, reason),
    allEnded: (nodeId, reason) => rows.markAllSandboxesEnded(db, nodeId, reason),
    target: (agentId) => rows.sandboxTarget(db, agentId),
    releaseAgent: (nodeId, agentId) => rows.releaseAgent(db, nodeId, agentId),
  };
}
