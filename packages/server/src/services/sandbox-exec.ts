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
  killedMs?: number;
}

/** How long a command that was killed may take to end, and its output after it. */
const KILLED_MS = 5_000;
const LOOK_MS = 100;

export function createSandboxExec(deps: SandboxExecDependencies): SandboxExecService {
  const { agents, host, openFollows, killedMs = KILLED_MS } = deps;

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
        const end = await supervise(process, input, output, AbortSignal.any([signal, stop.signal]), killedMs);
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
  killedMs: number,
): Promise<Omit<ExecEnd, 'durationMs'>> {
  let timedOut = false;
  const given = new Given(output);
  const silent = Promise.withResolvers<null>();
  let look: NodeJS.Timeout | undefined;
  const kill = () => {
    process.kill('SIGKILL');
    given.touch();
    look ??= setInterval(() => given.isQuietFor(killedMs) && silent.resolve(null), LOOK_MS);
  };
  const timer = setTimeout(() => {
    timedOut = true;
    kill();
  }, input.timeoutMs);
  signal.addEventListener('abort', kill, { once: true });
  if (signal.aborted) kill();
  // A command that does not read its input closes it; that is no failure.
  process.stdin.on('error', () => {});
  process.stdin.end(input.stdin ?? Buffer.alloc(0));
  const read = Promise.all([given.all('stdout', process.stdout), given.all('stderr', process.stderr)]);
  try {
    // A launcher that a process of the agent has stopped tells of no end; the sandbox ends for that, later.
    const exit = await Promise.race([process.exited, silent.promise]);
    if (exit === null) return { exitCode: null, signal: 'SIGKILL', timedOut, sandboxEnd: null };
    const isCut = timedOut || signal.aborted;
    // A client may take its time to read; nobody waits for what a killed command has left behind.
    await (isCut ? Promise.race([read, delay(killedMs, null, { ref: false })]) : read);
    return { exitCode: exit.code, signal: exit.signal, timedOut, sandboxEnd: exit.sandboxEnd ?? null };
  } finally {
    clearTimeout(timer);
    clearInterval(look);
    signal.removeEventListener('abort', kill);
    process.stdout.destroy();
    process.stderr.destroy();
  }
}

/** What a command says, on its way to the client, who reads as slowly as it likes. */
class Given {
  readonly #output: ExecOutput;
  #pending = 0;
  #lastMs = 0;

  constructor(output: ExecOutput) {
    this.#output = output;
  }

  touch(): void {
    this.#lastMs = performance.now();
  }

  /** Nothing has come for so long, and the client has read what did. */
  isQuietFor(ms: number): boolean {
    return this.#pending === 0 && performance.now() - this.#lastMs >= ms;
  }

  async all(name: 'stdout' | 'stderr', stream: AsyncIterable<Buffer>): Promise<void> {
    try {
      for await (const bytes of stream) {
        this.#pending += 1;
        await this.#output(name, bytes).finally(() => (this.#pending -= 1));
        this.touch();
      }
    } catch {
      // The sandbox ended within; how the command ended says so.
    }
  }
}
