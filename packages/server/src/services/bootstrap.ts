import { randomBytes } from 'node:crypto';
import { newKeyValue, parseKeyValue } from '../domain/api-key-value.ts';
import type { KeyValueParts } from '../domain/api-key-value.ts';
import { invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import type { Binding, Scope } from '../domain/nouns.ts';
import type { Repos } from '../domain/ports/repos.ts';
import type { AgentStore } from '../store/agents.ts';
import type { ApiKeyStore } from '../store/api-keys.ts';
import type { Database } from '../store/database.ts';
import type { DeploymentStore } from '../store/deployments.ts';
import type { OrgStore } from '../store/orgs.ts';
import type { SettingsStore } from '../store/settings.ts';
import { createHostedAgent } from './agents.ts';
import { mintKey } from './api-keys.ts';
import type { MintedKey } from './api.ts';
import { guide } from './starter.ts';

export interface BootstrapDependencies {
  db: Database;
  orgs: OrgStore;
  keys: ApiKeyStore;
  agents: AgentStore;
  deployments: DeploymentStore;
  settings: SettingsStore;
  repos: Repos;
  defaultModel: () => string;
  keyFile: BootstrapKeyFile;
}

export interface BootstrapKeyFile {
  /** The text in it; null when there is no file. */
  read(): string | null;
  /** Readable for its owner only, whole or not at all, durable when it returns. */
  write(text: string): void;
}

export interface BootstrapResult {
  orgId: string;
  /** Signs cursors; the same on every replica. */
  cursorSecret: Buffer;
  /** What the first start made; null on every later one. */
  made: { keyValue: string; agentId: string } | null;
  /** Whether the file still holds an active key; when not, `berth keys create` on the host makes another. */
  keyFile: 'usable' | 'missing' | 'unusable';
}

/**
 * The first start makes the organisation, its first key and an agent to talk to, all or nothing; a later one changes
 * nothing. The key's file is written before the commit, so that no service can be without a key that is in the file.
 */
export function bootstrap(deps: BootstrapDependencies): Promise<BootstrapResult> {
  const { db, orgs, settings } = deps;
  return db.tx(async () => {
    await settings.lockInstallation();
    const cursorSecret = Buffer.from(
      await settings.setOnce('cursor_secret', randomBytes(32).toString('hex')),
      'hex',
    );
    const org = await orgs.first();
    if (org) return { orgId: org.id, cursorSecret, made: null, keyFile: await stateOfKeyFile(deps) };
    const orgId = newId();
    await orgs.insert({ id: orgId, name: 'Default' });
    const agent = await createHostedAgent(
      deps,
      {
        id: newId(),
        orgId,
        name: guide.name,
        description: guide.description,
        model: deps.defaultModel(),
        externalGitUrl: null,
      },
      guide.files,
    );
    const keyValue = await makeFirstKey(deps, orgId);
    return { orgId, cursorSecret, made: { keyValue, agentId: agent.id }, keyFile: 'usable' };
  });
}

/** A value that is in the file already was put there by the operator, or by a first start that did not end: it is kept. */
async function makeFirstKey({ keys, keyFile }: BootstrapDependencies, orgId: string): Promise<string> {
  const given = readKeyFile(keyFile);
  const { value, hash, prefix } = given ?? newKeyValue();
  await keys.insert({
    id: newId(),
    orgId,
    agentId: null,
    name: 'bootstrap',
    prefix,
    hash,
    scope: 'edit',
    binding: 'org-bound',
    expiresAt: null,
  });
  keyFile.write(`${value}\n`);
  return value;
}

async function stateOfKeyFile({ keys, keyFile }: BootstrapDependencies): Promise<BootstrapResult['keyFile']> {
  if (keyFile.read() === null) return 'missing';
  const given = readKeyFile(keyFile);
  return given && (await keys.findActive(given.hash)) ? 'usable' : 'unusable';
}

function readKeyFile(keyFile: BootstrapKeyFile): (KeyValueParts & { value: string }) | null {
  const value = keyFile.read()?.trim() ?? '';
  const parts = parseKeyValue(value);
  return parts && { value, ...parts };
}

/** `berth keys create` on the host: whoever can open the database may make a key. */
export async function createHostKey(
  deps: Pick<BootstrapDependencies, 'orgs' | 'keys' | 'agents'>,
  input: { name: string; scope: Scope; binding: Binding; agentId: string | null; expiresAt?: Date },
): Promise<MintedKey> {
  const org = await deps.orgs.first();
  if (!org) throw invalid('database', 'is empty; start the service once before making keys.');
  if ((input.binding === 'agent-bound') !== (input.agentId !== null)) {
    throw invalid('agentId', 'is needed for an agent-bound key, and only there.');
  }
  if (input.agentId !== null && !(isId(input.agentId) && (await deps.agents.get(input.agentId))))
    throw notFound();
  return mintKey(deps.keys, { orgId: org.id, ...input });
}
