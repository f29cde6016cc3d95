import { requireEdit } from '../domain/access.ts';
import type { Box } from '../domain/box.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { readHosts } from '../domain/hosts.ts';
import { newId } from '../domain/ids.ts';
import { limits, secretKeyPattern } from '../domain/limits.ts';
import type { Cursors } from '../domain/paging.ts';
import { secretContext } from '../domain/seal-context.ts';
import { requireStorable } from '../domain/text.ts';
import type { AgentStore } from '../store/agents.ts';
import type { Database } from '../store/database.ts';
import type { SealedSecret, SecretStore } from '../store/secrets.ts';
import type { SecretsService } from './api.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

/** The secret with which an external repository is fetched. It stays on the host. */
export const GIT_TOKEN = 'GIT_TOKEN';

export interface SecretsDependencies {
  db: Database;
  agents: AgentStore;
  secrets: SecretStore;
  box: Box;
  /** Held until the end of the transaction: what is sealed in it is sealed under a key that stays. */
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  /** Names under which model providers look for their key, such as ANTHROPIC_API_KEY. */
  modelKeyNames: () => string[];
}

/** For the parts of the service that start sandboxes, call models and fetch; never for an edge. */
export interface SecretValues {
  /**
   * What goes into the sandbox's environment. Left out are provider keys (the model gateway uses them), GIT_TOKEN
   * (fetching uses it), and secrets for certain hosts (only an outbound proxy may use them).
   */
  valuesForSandbox(agentId: string): Promise<Record<string, string>>;
  /** The agent's own provider keys, by their usual name. */
  modelKeys(agentId: string): Promise<Record<string, string>>;
  gitToken(agentId: string): Promise<string | null>;
}

export function createSecrets(deps: SecretsDependencies): SecretsService & SecretValues {
  const { db, agents, secrets, box, cursors } = deps;

  const openAll = (agentId: string, rows: SealedSecret[]): Record<string, string> =>
    Object.fromEntries(
      rows.map((row) => [row.key, box.open(row, secretContext(agentId, row.key)).toString()]),
    );

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const page = await pageById(cursors, `secrets:${agentId}`, query, (at) => secrets.list(agentId, at));
      const items = page.items.map(({ key, hosts, updatedAt }) => ({ key, hosts, updatedAt }));
      return { items, nextCursor: page.nextCursor };
    },

    async put(p, agentId, key, input) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      if (!secretKeyPattern.test(key)) {
        throw invalid(
          'key',
          'must be a letter or underscore, then up to 127 letters, digits or underscores.',
        );
      }
      const value = readValue(input.value);
      const hosts = readHosts('hosts', input.hosts ?? []);
      await db.tx(async () => {
        // The lock makes counting and adding one step, and no secret is added to an agent that is being deleted.
        if (!(await agents.lock(agentId))) throw notFound();
        if ((await secrets.countOthers(agentId, key)) >= limits.secretsPerAgent) {
          throw new DomainError(
            'conflict',
            `An agent has at most ${limits.secretsPerAgent} secrets; delete one first.`,
          );
        }
        await deps.holdEncryptionKey();
        await secrets.put(newId(), agentId, { key, hosts, ...box.seal(value, secretContext(agentId, key)) });
        await agents.bumpGeneration(agentId);
      });
    },

    async remove(p, agentId, key) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      await db.tx(async () => {
        if (!secretKeyPattern.test(key) || !(await secrets.remove(agentId, key))) throw notFound();
        await agents.bumpGeneration(agentId);
      });
    },

    async valuesForSandbox(agentId) {
      const withheld = new Set([GIT_TOKEN, ...deps.modelKeyNames()]);
      const rows = await secrets.sealedOf(agentId);
      return openAll(
        agentId,
        rows.filter((row) => row.hosts.length === 0 && !withheld.has(row.key)),
      );
    },

    async modelKeys(agentId) {
      return openAll(agentId, await secrets.sealedOf(agentId, deps.modelKeyNames()));
    },

    async gitToken(agentId) {
      return openAll(agentId, await secrets.sealedOf(agentId, [GIT_TOKEN]))[GIT_TOKEN] ?? null;
    },
  };
}

/** 1 byte to 64 KiB of text without U+0000, which no environment variable can hold. */
function readValue(text: string): Buffer {
  requireStorable('value', text);
  const bytes = Buffer.from(text);
  if (bytes.length === 0 || bytes.length > limits.secretValueBytes) {
    throw invalid('value', `must have 1 to ${limits.secretValueBytes} bytes.`);
  }
  return bytes;
}
