import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DomainError } from '../../src/domain/errors.ts';
import { newId } from '../../src/domain/ids.ts';
import type { Agent, Principal } from '../../src/domain/nouns.ts';
import { SandboxControlError } from '../../src/domain/ports/sandbox-control.ts';
import { createAgentWeb, type AgentWebDependencies } from '../../src/services/agent-web.ts';
import { createSandboxExec, type SandboxExecDependencies } from '../../src/services/sandbox-exec.ts';
import { createSandboxes, type SandboxesDependencies } from '../../src/services/sandboxes.ts';
import { createSnapshots, type SnapshotsDependencies } from '../../src/services/snapshots.ts';
import { createTerminals, type TerminalsDependencies } from '../../src/services/terminals.ts';
import { fakeVolumeDriver } from '../support/fake-sandbox-host.ts';

const orgId = newId();
const owner: Principal = { keyId: newId(), orgId, scope: 'edit', binding: 'org-bound', agentId: null };

/** Services over a host that fails with `failure`; the agent is deleted while they wait for it, or stays. */
function world(failure: Error, isKept: boolean) {
  const agent = { id: newId(), orgId, slot: 1 } as Agent;
  let isDeleted = false;
  const fail = async (): Promise<never> => {
    isDeleted = !isKept;
    throw failure;
  };
  const host = { start: fail, stop: fail, restart: fail, kill: fail, control: fail, quiesce: fail };
  const shared = {
    agents: { get: async () => (isDeleted ? null : agent) },
    db: { sql: async () => [] },
    driver: { ...fakeVolumeDriver, prepareVolume: async () => {} },
    openFollows: { add: () => () => {} },
    deployments: { activeOf: async () => ({ manifest: { web: { port: 80, command: null } } }) },
    snapshots: { countOf: async () => 0, get: async () => ({ bytes: 0 }), chunksOf: async () => [] },
    ...{ host, nodeId: newId(), graceMs: 1, volumesDir: '/nowhere', snapshotsDir: '/nowhere', diskBytes: 1 },
  };
  const sandboxes = createSandboxes(shared as unknown as SandboxesDependencies);
  const exec = createSandboxExec(shared as unknown as SandboxExecDependencies);
  const terminals = createTerminals(shared as unknown as TerminalsDependencies);
  const web = createAgentWeb(shared as unknown as AgentWebDependencies);
  const snapshots = createSnapshots(shared as unknown as SnapshotsDependencies);
  const command = { command: ['true'], timeoutMs: 1_000 };
  const size = { columns: 80, rows: 24, term: 'xterm' };
  const calls: Record<string, () => Promise<unknown>> = {
    start: () => sandboxes.start(owner, agent.id),
    restart: () => sandboxes.restart(owner, agent.id),
    stop: () => sandboxes.stop(owner, agent.id),
    kill: () => sandboxes.kill(owner, agent.id),
    exec: () => exec.exec(owner, agent.id, command, async () => {}, new AbortController().signal),
    terminal: () => terminals.open(owner, agent.id, size),
    web: () => web.connect(owner, agent.id),
    snapshot: () => snapshots.create(owner, agent.id, {}),
    restore: () => snapshots.restore(owner, agent.id, newId(), {}),
    hold: () => snapshots.hold(agent, async () => null),
  };
  return calls;
}

const failures = [
  new DomainError('unavailable', 'Its agent was deleted.'),
  new DomainError('conflict', 'The agent has no deployment that is ready.'),
  new SandboxControlError('gone', 'The sandbox has ended.'),
  new Error('ENOENT'),
];

test('whatever a call for a sandbox meets, of an agent that was deleted meanwhile it says that there is none', async () => {
  for (const failure of failures)
    for (const name of Object.keys(world(failure, false)))
      await assert.rejects(world(failure, false)[name]!(), { code: 'not_found' }, `${name}: ${failure}`);
});

test('what a call for a sandbox meets it says, as long as its agent is there', async () => {
  for (const failure of failures)
    for (const name of Object.keys(world(failure, true)))
      await assert.rejects(
        world(failure, true)[name]!(),
        (error: { code?: string }) => error.code !== 'not_found',
        `${name}: ${failure}`,
      );
});
