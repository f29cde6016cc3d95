import { requireEdit } from '../domain/access.ts';
import { DomainError, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { AgentStore } from '../store/agents.ts';
import type { TerminalsService } from './api.ts';
import type { OpenFollows } from './open-follows.ts';
import { Places } from './places.ts';
import { startCommand } from './sandbox-exec.ts';
import type { SandboxHost } from './sandbox-host.ts';
import { Terminal } from './terminal.ts';
import { visibleAgent } from './visible-agent.ts';

export interface TerminalsDependencies {
  agents: AgentStore;
  host: Pick<SandboxHost, 'control'>;
  openFollows: OpenFollows;
  /** How long a terminal waits for its client to come back. */
  graceMs: number;
  /** For tests; else `limits.terminals`. */
  most?: { ofAgent: number; ofAll: number };
}

/** bash where there is one; a shell in any case. */
const shell = ['sh', '-c', 'if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi'];

export interface Terminals extends TerminalsService {
  /** Ends all of them. */
  close(): void;
}

export function createTerminals(deps: TerminalsDependencies): Terminals {
  const { agents, openFollows, graceMs } = deps;
  const open = new Map<string, { terminal: Terminal; forget: () => void }>();
  /** Those that are being started count as well. */
  const places = new Places('terminals are open', deps.most ?? limits.terminals);

  /** Those of whose end a client may still come back to learn give way to one that is wanted now. */
  function makeRoom(agentId: string): void {
    for (const { terminal, forget } of open.values()) {
      if (places.refusal(agentId) === null) return;
      if (!terminal.isGone || (terminal.agentId !== agentId && !places.isFull)) continue;
      terminal.end('closing');
      forget();
    }
  }

  return {
    async open(p, agentId, { columns, rows, term }) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      makeRoom(agentId);
      const refusal = places.refusal(agentId);
      if (refusal !== null) throw new DomainError('too_many_sandboxes', refusal, { retryAfterSeconds: 30 });
      const leave = places.take(agentId);
      try {
        const process = await startCommand(deps, agentId, {
          command: shell,
          env: { TERM: term },
          terminal: { columns, rows },
        });
        const terminal = new Terminal({ id: newId(), agentId, keyId: p.keyId, graceMs }, process);
        const stop = openFollows.add({ keyId: p.keyId, agentId, end: () => terminal.end('revoked') });
        const forget = (): void => {
          if (!open.delete(terminal.id)) return;
          stop();
          leave();
        };
        open.set(terminal.id, { terminal, forget });
        void terminal.over.then(forget);
        return terminal;
      } catch (error) {
        leave();
        throw error;
      }
    },

    async find(p, agentId, terminalId) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const terminal = open.get(terminalId)?.terminal;
      // What somebody types in a terminal is theirs: another key does not see it.
      if (!terminal || terminal.agentId !== agentId || terminal.keyId !== p.keyId) throw notFound();
      return terminal;
    },

    close() {
      for (const { terminal } of open.values()) terminal.end('closing');
    },
  };
}
