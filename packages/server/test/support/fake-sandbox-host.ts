import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { newId } from '../../src/domain/ids.ts';
import type { SandboxControl } from '../../src/domain/ports/sandbox-control.ts';
import type { HostedSandbox, SandboxHost, SandboxLogLine } from '../../src/services/sandbox-host.ts';

export interface FakeSandboxHost extends SandboxHost {
  /** What was asked for, in order. */
  calls: string[];
  control: SandboxHost['control'];
  /** Answers `control`. */
  setControl(control: SandboxControl): void;
  /** What `logs` gives. */
  lines: SandboxLogLine[];
  states: Map<string, HostedSandbox>;
}

/** Sandboxes that are started and stopped in memory only. */
export function fakeSandboxHost(): FakeSandboxHost {
  const states = new Map<string, HostedSandbox>();
  const calls: string[] = [];
  const lines: SandboxLogLine[] = [];
  let control: SandboxControl | null = null;
  const stopped = (agentId: string): HostedSandbox => ({
    agentId,
    state: 'stopped',
    sandboxId: null,
    since: null,
    runningTurns: 0,
    stats: null,
    reason: null,
  });
  const state = async (agentId: string) => states.get(agentId) ?? stopped(agentId);
  const start = async (agentId: string) => {
    calls.push(`start ${agentId}`);
    const running: HostedSandbox = states.get(agentId) ?? {
      ...stopped(agentId),
      state: 'running',
      sandboxId: newId(),
      since: new Date(),
      stats: { cpuMicros: 1234.5, memoryBytes: 4096, memoryByteSeconds: 1, pids: 3 },
    };
    states.set(agentId, running);
    return running;
  };
  const end = (name: string) => async (agentId: string) => {
    calls.push(`${name} ${agentId}`);
    states.delete(agentId);
    return stopped(agentId);
  };
  return {
    calls,
    lines,
    states,
    state,
    start,
    stop: end('stop'),
    kill: end('kill'),
    async restart(agentId) {
      await end('stop')(agentId);
      return start(agentId);
    },
    setControl: (given) => void (control = given),
    async control(agentId) {
      await start(agentId);
      if (!control) throw new Error('This test gave no control.');
      return control;
    },
    async quiesce(agentId, how, work) {
      calls.push(`${how} ${agentId}`);
      return work();
    },
    async *logs(_agentId, { after, follow, signal }) {
      yield* lines.filter((line) => !after || line.number > after.number);
      if (follow) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    },
  };
}

/** Makes volumes as a driver does that is not root. */
export const fakeVolumeDriver = {
  async prepareVolume(volumeDir: string) {
    for (const folder of ['workspace', 'home']) mkdirSync(join(volumeDir, folder), { recursive: true });
  },
  volumeUse: async () => ({ bytes: 0, entries: 0 }),
};
