import { setTimeout as delay } from 'node:timers/promises';
import { requireEdit } from '../domain/access.ts';
import { DomainError, invalid } from '../domain/errors.ts';
import { SandboxControlError } from '../domain/ports/sandbox-control.ts';
import type { SandboxCommand, SandboxProcess } from '../domain/ports/sandbox-control.ts';
import type { AgentStore } from '../store/agents.ts';
import type { ExecEnd, ExecInput, ExecOutput, SandboxExecService } from './api.ts';
import type { OpenFollows } from './open-follows.ts';
import type { SandboxHost } from './sandbox-host.ts';
import { visibleAgent, whileThere } from './visible-agent.ts';

export interface SandboxExecDependencies {
  agents: AgentStore;
  host: Pick<SandboxHost, 'control' | 'logs'>;
  openFollows: OpenFollows;
}

/** How long the output of a command that was killed may take to end. */
const KILLED_MS = 5_000;

export function createSandboxExec(deps: SandboxExecDependencies): SandboxExecService {
  const { agents, host, openFollows } = deps;

  return {
    async exec(p, agentId, input, output, signal) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const startedMs = performance.now();
      const process = await startCommand(deps, agentId, commandOf(input));
      input.onStart?.();
      const stop = new AbortController();
      const close = openFollows.add({ keyId: p.keyId, agentId, end: () => stop.abort() });
      try {
        const end = await supervise(process, input, output, AbortSignal.any([signal, stop.signal]));
        return { ...end, durationMs: Math.round(performance.now() - startedMs) };
      } finally {
        close();
      }
    },

    async *logs(p, agentId, options) {
      await visibleAgent(agents, p, agentId);
      const stop = new AbortController();
      const close = openFollows.add({ keyId: p.keyId, agentId, end: () => stop.abort() });
      try {
        yield* host.logs(agentId, { ...options, signal: AbortSignal.any([options.signal, stop.signal]) });
      } finally {
        close();
      }
    },
  };
}

/** Starts a command in an agent's sandbox, and says in words of the surface why not. */
export async function startCommand(
  { agents, host }: { agents: Pick<AgentStore, 'get'>; host: Pick<SandboxHost, 'control'> },
  agentId: string,
  command: SandboxCommand,
): Promise<SandboxProcess> {
  try {
    return await whileThere(agents, agentId, async () => (await host.control(agentId)).exec(command));
  } catch (error) {
    if (!(error instanceof SandboxControlError)) throw error;
    switch (error.code) {
      case 'not_found':
        throw invalid('command', error.message);
      case 'limit':
        throw new DomainError('too_many_sandboxes', error.message, { retryAfterSeconds: 5, cause: error });
      case 'failed':
      case 'gone':
        throw new DomainError('conflict', error.message, { cause: error });
    }
  }
}

function commandOf(input: ExecInput): SandboxCommand {
  const command: SandboxCommand = { command: input.command };
  if (input.env) command.env = input.env;
  if (input.cwd !== undefined) command.cwd = input.cwd;
  return command;
}

async function supervise(
  process: SandboxProcess,
  input: ExecInput,
  output: ExecOutput,
  signal: AbortSignal,
): Promise<Omit<ExecEnd, 'durationMs'>> {
  let timedOut = false;
  const kill = () => process.kill('SIGKILL');
  const timer = setTimeout(() => {
    timedOut = true;
    kill();
  }, input.timeoutMs);
  signal.addEventListener('abort', kill, { once: true });
  if (signal.aborted) kill();
  // A command that does not read its input closes it; that is no failure.
  process.stdin.on('error', () => {});
  process.stdin.end(input.stdin ?? Buffer.alloc(0));
  const read = Promise.all([
    take(process.stdout, (bytes) => output('stdout', bytes)),
    take(process.stderr, (bytes) => output('stderr', bytes)),
  ]);
  try {
    const { code, signal: by } = await process.exited;
    const isCut = timedOut || signal.aborted;
    // A client may take its time to read; nobody waits for what a killed command has left behind.
    await (isCut ? Promise.race([read, delay(KILLED_MS, null, { ref: false })]) : read);
    return { exitCode: code, signal: by, timedOut };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', kill);
    process.stdout.destroy();
    process.stderr.destroy();
  }
}

async function take(stream: AsyncIterable<Buffer>, give: (bytes: Buffer) => Promise<void>): Promise<void> {
  try {
    for await (const bytes of stream) await give(bytes);
  } catch {
    // The sandbox ended within; how the command ended says so.
  }
}
