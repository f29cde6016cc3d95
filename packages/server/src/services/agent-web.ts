import { DomainError, notFound } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import { SandboxControlError } from '../domain/ports/sandbox-control.ts';
import type { AgentStore } from '../store/agents.ts';
import type { DeploymentStore } from '../store/deployments.ts';
import type { AgentWebService } from './api.ts';
import type { OpenFollows } from './open-follows.ts';
import { Places } from './places.ts';
import type { SandboxHost } from './sandbox-host.ts';
import { visibleAgent, whileThere } from './visible-agent.ts';

export interface AgentWebDependencies {
  agents: AgentStore;
  deployments: Pick<DeploymentStore, 'activeOf'>;
  host: Pick<SandboxHost, 'control'>;
  openFollows: OpenFollows;
  /** For tests; else `limits.webConnections`. */
  most?: { ofAgent: number; ofAll: number };
}

export function createAgentWeb(deps: AgentWebDependencies): AgentWebService {
  const { agents, deployments, host, openFollows } = deps;
  /** Those that are being opened count as well. */
  const places = new Places(
    "connections to an agent's web server are open",
    deps.most ?? limits.webConnections,
  );

  function enter(agentId: string): () => void {
    const refusal = places.refusal(agentId);
    if (refusal !== null) throw unavailable(refusal);
    return places.take(agentId);
  }

  async function of(agentId: string) {
    return (await deployments.activeOf(agentId))?.manifest.web ?? null;
  }

  return {
    of,
    async connect(p, agentId) {
      if (p) await visibleAgent(agents, p, agentId);
      const web = await of(agentId);
      if (!web || (!p && !web.public)) throw notFound();
      const leave = enter(agentId);
      try {
        const connection = await whileThere(agents, agentId, async () =>
          (await host.control(agentId)).connect(web),
        );
        const end = () => connection.destroy();
        const forget = openFollows.add({ agentId, end, ...(p && { keyId: p.keyId }) });
        connection.on('error', () => {});
        connection.once('close', () => {
          forget();
          leave();
        });
        return connection;
      } catch (error) {
        leave();
        throw failure(error, p === null);
      }
    },
  };
}

const unreachable = "The agent's web server could not be reached.";

/** Why there is no connection. Somebody without a key is told nothing of what is inside. */
function failure(error: unknown, isPublic: boolean): unknown {
  if (error instanceof SandboxControlError) {
    switch (error.code) {
      case 'limit':
      case 'gone':
        return unavailable('The agent is being restarted, or has too many connections.', error);
      case 'not_found':
      case 'failed':
        return new DomainError('bad_gateway', isPublic ? unreachable : `${unreachable} ${error.message}`, {
          cause: error,
        });
    }
  }
  if (!(error instanceof DomainError)) return error;
  const isWithout = error.code === 'conflict' || error.code === 'too_many_sandboxes';
  if (!isWithout && error.code !== 'unavailable') return error;
  return unavailable(isPublic ? 'The agent cannot be started just now; try again.' : error.message, error);
}

function unavailable(message: string, cause?: unknown): DomainError {
  return new DomainError('unavailable', message, { retryAfterSeconds: 5, cause });
}
