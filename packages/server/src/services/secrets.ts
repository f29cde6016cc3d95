import { requireEdit } from '../domain/access.ts';
import type { Box } from '../domain/box.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { readHosts, type HostRules } from '../domain/hosts.ts';
import { newId } from '../domain/ids.ts';
import { limits, secretKeyPattern } from '../domain/limits.ts';
import type { SecretKind } from '../domain/nouns.ts';
import { authorityVariables, isAuthorityVariable, isOwnVariable } from '../domain/own-variables.ts';
import type { Log } from '../domain/log.ts';
import { RepoError } from '../domain/ports/repos.ts';
import type { BrokeredName, BrokeredSecret, BrokeredValues } from '../domain/ports/secret-broker.ts';
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
  /** Which names the hosts of a secret may have. */
  hostRules: HostRules;
  log: Log;
}

/** For the parts of the service that start sandboxes, call models and fetch; never for an edge. */
export interface SecretValues {
  /**
   * What goes into the sandbox's environment. Left out are provider keys (the model gateway uses them), GIT_TOKEN
   * (fetching uses it), and brokered secrets (only the outbound proxy may use them).
   */
  valuesForSandbox(agentId: string): Promise<Record<string, string>>;
  /** The brokered secrets without their values: what a sandbox is started with. */
  brokeredNames(agentId: string): Promise<BrokeredName[]>;
  /** As they are at this moment, so that a rotation or deletion holds from the next request on. Not to be kept. */
  brokeredValues(agentId: string): Promise<BrokeredValues>;
  /** Hosts whose answers are searched for what secrets were before, whether or not one is brokered for them now. */
  earlierHosts(agentId: string): Promise<string[]>;
  /** Removes what is not searched for any more. To be called now and then. */
  purgeEarlier(): Promise<number>;
  /** The agent's own provider keys, by their usual name. */
  modelKeys(agentId: string): Promise<Record<string, string>>;
  /** The token for fetching from this https URL. Rejects with RepoError when there is one for another origin. */
  gitToken(agentId: string, url: string): Promise<string | null>;
}

type Searched = Pick<BrokeredSecret, 'value' | 'hosts'>;

export function createSecrets(deps: SecretsDependencies): SecretsService & SecretValues {
  const { db, agents, secrets, box, cursors } = deps;

  const withheldNames = () => new Set([GIT_TOKEN, ...deps.modelKeyNames()]);

  const kindOf = (key: string, hosts: string[], withheld: Set<string>): SecretKind => {
    if (withheld.has(key)) return 'withheld';
    return hosts.length > 0 ? 'brokered' : 'env';
  };

  const openAll = (agentId: string, rows: SealedSecret[]): Record<string, string> =>
    Object.fromEntries(
      rows.map((row) => [row.key, box.open(row, secretContext(agentId, row.key)).toString()]),
    );

  /** What its hosts were told they may tell later: kept before it changes, unless what follows is searched for there too. */
  async function keepEarlier(agentId: string, before: SealedSecret | undefined, after: Searched | null) {
    if (!before || before.hosts.length === 0) return;
    let value: Buffer;
    try {
      value = box.open(before, secretContext(agentId, before.key));
    } catch {
      // Nothing can be searched for it, and it must not stand in the way of another one.
      return;
    }
    const isCovered = after?.value.equals(value) && before.hosts.every((host) => after.hosts.includes(host));
    if (!isCovered) await secrets.keepEarlier(newId(), agentId, before.key);
  }

  /** Refuses what the agent would never see, since the service sets a variable of this name itself. */
  async function requireSeen(agentId: string, key: string, isBrokered: boolean, withheld: Set<string>) {
    if (isOwnVariable(key) || (isBrokered && isAuthorityVariable(key))) throw taken(key);
    if (!isBrokered && !isAuthorityVariable(key)) return;
    const brokered = (await secrets.withHosts(agentId)).filter((row) => !withheld.has(row.key));
    if (!isBrokered) {
      if (brokered.some((row) => row.key !== key)) throw takenByBroker(key);
      return;
    }
    // With the first one the service begins to set them; what was hidden before it is no reason against another.
    if (brokered.length > 0) return;
    const [hidden] = await secrets.sealedOf(agentId, [...authorityVariables]);
    if (hidden) throw hides(hidden.key);
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const page = await pageById(cursors, `secrets:${agentId}`, query, (at) => secrets.list(agentId, at));
      const withheld = withheldNames();
      const items = page.items.map(({ key, hosts, updatedAt }) => {
        const kind = kindOf(key, hosts, withheld);
        return { key, kind, hosts, updatedAt };
      });
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
      const given = input.hosts && readHosts('hosts', input.hosts, deps.hostRules);
      await db.tx(async () => {
        // The lock makes counting and adding one step, and no secret is added to an agent that is being deleted.
        const agent = await agents.lock(agentId);
        if (!agent) throw notFound();
        if ((await secrets.countOthers(agentId, key)) >= limits.secretsPerAgent) {
          throw new DomainError(
            'conflict',
            `An agent has at most ${limits.secretsPerAgent} secrets; delete one first.`,
          );
        }
        await deps.holdEncryptionKey();
        const [before] = await secrets.sealedOf(agentId, [key]);
        // Rotating a brokered secret by its value alone must not open it to the agent.
        const hosts = given ?? before?.hosts ?? [];
        const withheld = withheldNames();
        if (!withheld.has(key)) await requireSeen(agentId, key, hosts.length > 0, withheld);
        if (hosts.length > 0) requireBrokerable(key, value, withheld);
        const gitUrl = key === GIT_TOKEN ? agent.externalGitUrl : null;
        const sentTo = gitUrl === null ? null : new URL(gitUrl).origin;
        await keepEarlier(agentId, before, { value, hosts });
        const sealed = box.seal(value, secretContext(agentId, key));
        await secrets.put(newId(), agentId, { key, hosts, sentTo, ...sealed });
        // A running sandbox holds nothing of a brokered value: a rotated one needs no other sandbox.
        const isRotation = hosts.length > 0 && before !== undefined && sameHosts(before.hosts, hosts);
        if (!isRotation) await agents.bumpGeneration(agentId);
      });
    },

    async remove(p, agentId, key) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      if (!secretKeyPattern.test(key)) throw notFound();
      await db.tx(async () => {
        if (!(await agents.lock(agentId))) throw notFound();
        // What it was is kept as a sealed row: a rotation of the key that has locked the tables must not be met halfway.
        await deps.holdEncryptionKey();
        const [before] = await secrets.sealedOf(agentId, [key]);
        await keepEarlier(agentId, before, null);
        if (!(await secrets.remove(agentId, key))) throw notFound();
        await agents.bumpGeneration(agentId);
      });
    },

    async valuesForSandbox(agentId) {
      const withheld = withheldNames();
      const rows = await secrets.sealedOf(agentId);
      return openAll(
        agentId,
        rows.filter((row) => kindOf(row.key, row.hosts, withheld) === 'env'),
      );
    },

    async brokeredNames(agentId) {
      const withheld = withheldNames();
      const rows = await secrets.withHosts(agentId);
      return rows.filter((row) => !withheld.has(row.key));
    },

    async brokeredValues(agentId) {
      const withheld = withheldNames();
      const rows = await secrets.sealedWithHosts(agentId);
      const opened = rows
        .filter((row) => row.isEarlier || !withheld.has(row.key))
        .flatMap((row) => {
          const { key, hosts, isEarlier } = row;
          try {
            return [{ isEarlier, secret: { key, hosts, value: box.open(row, secretContext(agentId, key)) } }];
          } catch (error) {
            if (!isEarlier) throw error;
            // Nothing can be searched for it, and what the agent has now must go on being used.
            deps.log.warn('An earlier value of a secret cannot be opened, and is not searched for.', {
              agentId,
              key,
            });
            return [];
          }
        });
      const those = (isEarlier: boolean) =>
        opened.filter((one) => one.isEarlier === isEarlier).map(({ secret }) => secret);
      return { secrets: those(false), earlier: those(true) };
    },

    async earlierHosts(agentId) {
      const hosts = await secrets.earlierHosts(agentId);
      if (hosts.length === 0) return [];
      const withheld = withheldNames();
      const current = await secrets.withHosts(agentId);
      if (current.some((row) => !withheld.has(row.key))) return hosts;
      // An env secret that was set once no secret had hosts any more is what the agent is to see.
      const [shown] = await secrets.sealedOf(agentId, [...authorityVariables]);
      return shown ? [] : hosts;
    },

    purgeEarlier: () => secrets.purgeEarlier(),

    async modelKeys(agentId) {
      return openAll(agentId, await secrets.sealedOf(agentId, deps.modelKeyNames()));
    },

    async gitToken(agentId, url) {
      const [row] = await secrets.sealedOf(agentId, [GIT_TOKEN]);
      if (!row) return null;
      const { origin } = new URL(url);
      // Whoever may change gitUrl must not read the token by having it sent to a server of their own.
      if (row.sentTo !== origin) {
        throw new RepoError(
          `The secret GIT_TOKEN was set before gitUrl led to ${origin}, so it is not sent there. Set GIT_TOKEN again for this address, or delete it when none is needed; then deploy again.`,
        );
      }
      return openAll(agentId, [row])[GIT_TOKEN]!;
    },
  };
}

const taken = (key: string) =>
  invalid(
    'key',
    `${key} is a variable that the service itself sets in the sandbox, so the agent would never see it; take another name.`,
  );

const takenByBroker = (key: string) =>
  invalid(
    'key',
    `${key} is set by the service itself in the sandbox of an agent that has secrets with hosts, so the agent would never see it; take another name, or delete the secrets with hosts first.`,
  );

const hides = (key: string) =>
  invalid(
    'hosts',
    `cannot be given while the agent has the secret ${key}: with them the service sets this variable itself, and the agent would not see it any more. Delete ${key} first.`,
  );

/** 1 byte to 64 KiB of text without U+0000, which no environment variable can hold. */
function readValue(text: string): Buffer {
  requireStorable('value', text);
  const bytes = Buffer.from(text);
  if (bytes.length === 0 || bytes.length > limits.secretValueBytes) {
    throw invalid('value', `must have 1 to ${limits.secretValueBytes} bytes.`);
  }
  return bytes;
}

/** A value that goes into a request header (RFC 9110, section 5.5), and that is known again in an answer. */
function requireBrokerable(key: string, value: Buffer, withheld: Set<string>): void {
  if (withheld.has(key)) {
    throw invalid(
      'hosts',
      `cannot be given for ${key}: the service itself uses it, and nothing of it is in the sandbox. Leave hosts out, or take another name.`,
    );
  }
  const { brokeredValueMinBytes: least, brokeredValueMaxBytes: most } = limits;
  if (value.length < least || value.length > most) {
    throw invalid('value', `must have ${least} to ${most} bytes when hosts are given.`);
  }
  const isLine = value.every((byte) => byte >= 0x20 && byte !== 0x7f);
  if (!isLine || value[0] === 0x20 || value.at(-1) === 0x20) {
    throw invalid(
      'value',
      'must be one line without control characters or spaces around it when hosts are given: it goes into a request header.',
    );
  }
}

function sameHosts(one: string[], other: string[]): boolean {
  return one.length === other.length && one.every((host) => other.includes(host));
}
