import { randomBytes } from 'node:crypto';
import { requireEdit } from '../domain/access.ts';
import type { Box } from '../domain/box.ts';
import type { ChannelKindName } from '../domain/channel.ts';
import { readCredentials, readSettings } from '../domain/channel-settings.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import type { ChannelKind, ChannelSetup } from '../domain/ports/channel.ts';
import { channelContext } from '../domain/seal-context.ts';
import { readName } from '../domain/text.ts';
import type { UrlGuard } from '../domain/url-guard.ts';
import type { AgentStore } from '../store/agents.ts';
import { PREVIOUS, type ChannelRow, type ChannelStore } from '../store/channels.ts';
import type { Database } from '../store/database.ts';
import { isUniqueViolation } from '../store/errors.ts';
import { createChannelUrls } from './channel-urls.ts';
import type { ChannelsService } from './channels-api.ts';
import { pageById } from './paging.ts';
import { visibleAgent } from './visible-agent.ts';

export interface ChannelsDependencies {
  db: Database;
  agents: AgentStore;
  channels: ChannelStore;
  kinds: Readonly<Record<ChannelKindName, ChannelKind>>;
  box: Box;
  /** Held until the end of the transaction: what is sealed in it is sealed under a key that stays. */
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  guard: UrlGuard;
  /** Told when a change is durable, before whoever asked for it has an answer. */
  onChanged: (channelId: string) => void;
}

/** For the parts of the service that receive and answer; never for an edge of the API. */
export interface ChannelSetups {
  /** Null when there is no such channel, or its agent was deleted. */
  open(channelId: string): Promise<{ row: ChannelRow; setup: ChannelSetup } | null>;
}

export function createChannels(deps: ChannelsDependencies): Omit<ChannelsService, 'test'> & ChannelSetups {
  const { db, agents, channels, kinds, box, cursors } = deps;
  const urls = createChannelUrls(deps.guard);

  /** The channel, when the caller may change its agent; whatever else is wrong is `not_found`. */
  async function editable(p: Principal, id: string): Promise<ChannelRow> {
    const found = isId(id) ? await channels.get(id) : null;
    if (!found) throw notFound();
    await visibleAgent(agents, p, found.agentId);
    requireEdit(p);
    return found;
  }

  async function openCredentials(channelId: string) {
    const rows = await channels.credentials(channelId);
    const opened = rows.map((row) => [
      row.name,
      box.open(row, channelContext(channelId, row.name)).toString(),
    ]);
    const { [PREVIOUS]: previous, ...credentials } = Object.fromEntries(opened) as Record<string, string>;
    return { credentials, previousSecret: previous ?? null };
  }

  async function putCredential(
    channelId: string,
    name: string,
    value: string,
    validUntil: Date | null = null,
  ) {
    const sealed = box.seal(Buffer.from(value), channelContext(channelId, name));
    await channels.putCredential(channelId, { name, validUntil, ...sealed });
  }

  /** Within the transaction: so many channels share a Slack app at most. */
  async function requireRoom(orgId: string, id: string, settings: ChannelSetup['settings']): Promise<void> {
    const { appId } = settings;
    if (typeof appId !== 'string' || appId === '') return;
    const { otherOrgs, own } = await channels.countOfSlackApp(appId, orgId, id);
    if (otherOrgs < limits.slackAppOrgs && own < limits.slackAppChannels) return;
    throw new DomainError(
      'conflict',
      `A Slack app is shared by at most ${limits.slackAppOrgs} organisations and ${limits.slackAppChannels} channels of each; leave appId out, and use the URL of the channel.`,
    );
  }

  /** In a transaction; an address of mail that is another channel's is a `conflict`. */
  function alone<T>(work: () => Promise<T>): Promise<T> {
    return db.tx(work).catch((error: unknown) => {
      if (!isUniqueViolation(error)) throw error;
      throw new DomainError('conflict', 'Another channel takes the mail to this address already.');
    });
  }

  /** The channel as it is after the change; what cannot be is refused, and nothing is changed. */
  async function change(
    p: Principal,
    id: string,
    work: (before: ChannelRow) => Promise<void>,
  ): Promise<ChannelRow> {
    await editable(p, id);
    return alone(async () => {
      if (!(await channels.lock(id))) throw notFound();
      const before = await channels.get(id);
      if (!before) throw notFound();
      db.afterCommit(() => deps.onChanged(id));
      await work(before);
      return (await channels.get(id))!;
    });
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      return pageById(cursors, `channels:${agentId}`, query, (at) => channels.list(agentId, at));
    },

    get: editable,

    async create(p, agentId, input) {
      const agent = await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const kind = kinds[input.kind];
      const name = readName('name', input.name ?? input.kind);
      const settings = readSettings(kind.settings, input.settings ?? {});
      const given = present(readCredentials(kind.credentials, input.credentials ?? {}));
      const made = makeSecret(kind, settings, given);
      const credentials = { ...given, ...made.credentials };
      requireCredentials(kind, credentials);
      kind.check({ settings, credentials });
      await urls.check(kind.settings, settings);
      const apiBaseUrl = await urls.readBase(input.apiBaseUrl);
      const id = newId();
      const channel = await alone(async () => {
        // The lock makes counting and adding one step, and no channel is added to an agent that is being deleted.
        if (!(await agents.lock(agentId))) throw notFound();
        if ((await channels.count(agentId)) >= limits.channelsPerAgent) {
          throw new DomainError(
            'conflict',
            `An agent has at most ${limits.channelsPerAgent} channels; delete one first.`,
          );
        }
        await requireRoom(agent.orgId, id, settings);
        await deps.holdEncryptionKey();
        await channels.insert({
          id,
          orgId: agent.orgId,
          agentId,
          kind: input.kind,
          name,
          settings,
          apiBaseUrl,
        });
        for (const [key, value] of Object.entries(credentials)) await putCredential(id, key, value);
        return (await channels.get(id))!;
      });
      return { channel, secret: made.secret };
    },

    async update(p, id, patch) {
      const name = patch.name === undefined ? null : readName('name', patch.name);
      // Names are looked up outside of the transaction.
      const { kind: kindName } = await editable(p, id);
      await urls.check(kinds[kindName].settings, patch.settings ?? {});
      const baseUrl = patch.apiBaseUrl === undefined ? undefined : await urls.readBase(patch.apiBaseUrl);
      return change(p, id, async (before) => {
        const kind = kinds[before.kind];
        const settings = readSettings(kind.settings, { ...before.settings, ...patch.settings });
        const changed = readCredentials(kind.credentials, patch.credentials ?? {});
        const { credentials } = await openCredentials(id);
        const merged = present(new Map<string, string | null>([...Object.entries(credentials), ...changed]));
        requireCredentials(kind, merged);
        kind.check({ settings, credentials: merged });
        const apiBaseUrl = baseUrl === undefined ? before.apiBaseUrl : baseUrl;
        const kept = Object.keys(credentials).filter((key) => !changed.has(key));
        requireSamePlace(kind, kept, before, { settings, apiBaseUrl });
        if (settings['appId'] !== before.settings['appId']) await requireRoom(before.orgId, id, settings);
        await channels.update(id, { name: name ?? before.name, settings, apiBaseUrl });
        if (changed.size > 0) await deps.holdEncryptionKey();
        for (const [key, value] of changed) {
          if (value === null) await channels.removeCredential(id, key);
          else await putCredential(id, key, value);
        }
      });
    },

    async remove(p, id) {
      await editable(p, id);
      await channels.remove(id);
      db.afterCommit(() => deps.onChanged(id));
    },

    pause: (p, id) => change(p, id, async () => channels.setStatus(id, 'paused')),

    resume: (p, id) => change(p, id, async () => channels.setStatus(id, 'active')),

    async rotateSecret(p, id, input) {
      let secret: string | null = null;
      const channel = await change(p, id, async (before) => {
        const kind = kinds[before.kind];
        const signing = kind.signing(before.settings);
        if (!signing)
          throw new DomainError('conflict', 'The provider of this channel signs with keys of its own.');
        const given = input.value === undefined ? {} : { [signing.credential]: input.value };
        const next = present(readCredentials(kind.credentials, given));
        const made = makeSecret(kind, before.settings, next);
        const value = { ...next, ...made.credentials }[signing.credential];
        if (value === undefined)
          throw invalid('value', 'is needed: the provider gives the secret of this kind of channel.');
        const { credentials } = await openCredentials(id);
        kind.check({
          settings: before.settings,
          credentials: { ...credentials, [signing.credential]: value },
        });
        await deps.holdEncryptionKey();
        const old = credentials[signing.credential];
        if (old !== undefined && old !== value) {
          await putCredential(
            id,
            PREVIOUS,
            old,
            new Date(Date.now() + limits.previousSecretHours * 3_600_000),
          );
        }
        await putCredential(id, signing.credential, value);
        ({ secret } = made);
      });
      return { channel, secret };
    },

    async open(channelId) {
      const row = isId(channelId) ? await channels.get(channelId) : null;
      if (!row) return null;
      const { settings, apiBaseUrl } = row;
      return { row, setup: { channelId, settings, apiBaseUrl, ...(await openCredentials(channelId)) } };
    },
  };
}

function present(credentials: ReadonlyMap<string, string | null>): Record<string, string> {
  return Object.fromEntries([...credentials].filter((entry): entry is [string, string] => entry[1] !== null));
}

function requireCredentials(kind: ChannelKind, credentials: Record<string, string>): void {
  const missing = kind.credentials.find(({ name, required }) => required && !credentials[name]);
  if (missing) throw invalid(`credentials.${missing.name}`, `is needed. ${missing.description}`);
}

/** Whoever may change a channel must not read its credentials by having them sent to a server of their own. */
function requireSamePlace(
  kind: ChannelKind,
  kept: string[],
  before: Pick<ChannelSetup, 'settings' | 'apiBaseUrl'>,
  after: Pick<ChannelSetup, 'settings' | 'apiBaseUrl'>,
): void {
  const moved = kept.filter((name) => {
    const place = kind.sentTo(name, after);
    return place !== null && place !== kind.sentTo(name, before);
  });
  const [first] = moved;
  if (first === undefined) return;
  throw invalid(
    `credentials.${first}`,
    `must be given again with this change, by which it would be sent to ${kind.sentTo(first, after)}: stored credentials go only where they were given for. Give in the same request: ${moved.map((name) => `credentials.${name}`).join(', ')}.`,
  );
}

/** A signing secret, unless it was given or comes from the provider. */
function makeSecret(
  kind: ChannelKind,
  settings: ChannelSetup['settings'],
  given: Record<string, string>,
): { credentials: Record<string, string>; secret: string | null } {
  const signing = kind.signing(settings);
  if (!signing || signing.made === 'given' || given[signing.credential])
    return { credentials: {}, secret: null };
  const bytes = randomBytes(32);
  const secret = signing.made === 'whsec' ? `whsec_${bytes.toString('base64')}` : bytes.toString('base64url');
  return { credentials: { [signing.credential]: secret }, secret };
}
