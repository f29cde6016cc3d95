import { requireEdit } from '../domain/access.ts';
import { DomainError, notFound } from '../domain/errors.ts';
import { newId } from '../domain/ids.ts';
import type { AgentStore } from '../store/agents.ts';
import type { TerminalsService } from './api.ts';
import type { OpenFollows } from './open-follows.ts';
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
}

const MAX_OF_AGENT = 8;
const MAX_OF_ALL = 200;
/** bash where there is one; a shell in any case. */
const shell = ['sh', '-c', 'if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi'];

export interface Terminals extends TerminalsService {
  /** Ends all of them. */
  close(): void;
}

export function createTerminals(deps: TerminalsDependencies): Terminals {
  const { agents, host, openFollows, graceMs } = deps;
  const open = new Map<string, { terminal: Terminal; forget: () => void }>();
  /** Those that are being started count as well. */
  const counts = new Map<string, number>();
  const ofAll = () => [...counts.values()].reduce((sum, count) => sum + count, 0);

  function leave(agentId: string): void {
    const left = (counts.get(agentId) ?? 1) - 1;
    if (left > 0) counts.set(agentId, left);
    else counts.delete(agentId);
  }

  /** Those of whose end a client may still come back to learn give way to one that is wanted now. */
  function makeRoom(agentId: string): boolean {
    const isFullOfAll = (): boolean => ofAll() >= MAX_OF_ALL;
    const isFull = (): boolean => isFullOfAll() || (counts.get(agentId) ?? 0) >= MAX_OF_AGENT;
    for (const { terminal, forget } of open.values()) {
      if (!isFull()) return true;
      if (!terminal.isGone || (terminal.agentId !== agentId && !isFullOfAll())) continue;
      terminal.end('closing');
      forget();
    }
    return !isFull();
  }

  return {
    async open(p, agentId, { columns, rows, term }) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      if (!makeRoom(agentId))
        throw new DomainError(
          'too_many_sandboxes',
          `At most ${MAX_OF_AGENT} terminals of an agent are open at once.`,
          {
            retryAfterSeconds: 30,
          },
        );
      counts.set(agentId, (counts.get(agentId) ?? 0) + 1);
      try {
        const process = await startCommand(host, agentId, {
          command: shell,
          env: { TERM: term },
          terminal: { columns, rows },
        });
        const terminal = new Terminal({ id: newId(), agentId, keyId: p.keyId, graceMs }, process);
        const stop = openFollows.add({ keyId: p.keyId, agentId, end: () => terminal.end('revoked') });
        const forget = (): void => {
          if (!open.delete(terminal.id)) return;
          stop();
          leave(agentId);
        };
        open.set(terminal.id, { terminal, forget });
        void terminal.over.then(forget);
        return terminal;
      } catch (error) {
        leave(agentId);
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
