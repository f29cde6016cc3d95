import { DomainError, notFound } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { ChannelKind, ChannelSetup, InboundRequest } from '../domain/ports/channel.ts';
import type { SharedApp } from '../domain/ports/shared-app.ts';
import { bySize, oneStep } from '../domain/slices.ts';
import type { ChannelRow, ChannelStore } from '../store/channels.ts';
import type { ChannelSetups } from './channels.ts';
import type { ForgeryBudget } from './forgery-budget.ts';
import { asBusy, hurried, type Inbox } from './inbox.ts';

/** In place of the id of a channel: which one it is, the delivery says. */
export const shared = '';

export interface SharedSlackDependencies {
  inbox: Pick<Inbox, 'admit' | 'receive'>;
  channels: Pick<ChannelStore, 'ofSlackApp'>;
  setups: ChannelSetups;
  kind: ChannelKind;
  app: SharedApp;
  forgeries: ForgeryBudget;
  log: Log;
  now?: () => number;
}

/** As long as a setup: a channel that begins or ends to share an app is known on every replica within that. */
const keptMs = 1_000;
const none = new Map<string, string>();
const acknowledged = { status: 200, headers: {}, body: '' };

/**
 * An inbox that also takes what comes to the one URL of a Slack app that several agents share. The app's id in the body leads to
 * channels; only those whose own secret made the signature count, and of these the one that names most exactly where the
 * delivery comes from gets it. What is genuine and for nobody is acknowledged, so that Slack does not send it again.
 */
export function withSharedSlack(deps: SharedSlackDependencies): Pick<Inbox, 'admit' | 'receive'> {
  const { inbox, kind, app } = deps;
  const now = deps.now ?? Date.now;
  const kept = new Map<string, { atMs: number; ids: Promise<string[]> }>();

  function idsOf(appId: string): Promise<string[]> {
    const before = kept.get(appId);
    if (before && now() - before.atMs < keptMs) return before.ids;
    if (kept.size > 10_000) kept.clear();
    const ids = deps.channels.ofSlackApp(appId, limits.slackAppOrgs * limits.slackAppChannels);
    kept.set(appId, { atMs: now(), ids });
    ids.catch(() => kept.delete(appId));
    return ids;
  }

  /** Channels whose secret made the signature; each secret is tried once. */
  async function genuine(appId: string, request: InboundRequest) {
    const verdicts = new Map<string, boolean>();
    const isGenuine = (setup: ChannelSetup) => {
      const key = JSON.stringify([setup.credentials['signingSecret'], setup.previousSecret]);
      const known = verdicts.get(key) ?? kind.verify(request, setup, now(), none).verdict === 'genuine';
      verdicts.set(key, known);
      return known;
    };
    const opened = await Promise.all((await idsOf(appId)).map((id) => deps.setups.open(id)));
    const found: { row: ChannelRow; setup: ChannelSetup }[] = [];
    for (const one of opened) {
      // It may have changed since the list was read.
      const isOfApp = one?.row.status === 'active' && one.setup.settings['appId'] === appId;
      if (one && isOfApp && isGenuine(one.setup)) found.push(one);
    }
    return found;
  }

  return {
    async admit(kindName, channelId) {
      if (channelId !== shared) return inbox.admit(kindName, channelId);
      if (kindName !== kind.name) throw notFound();
      return hurried(kind, deps.forgeries, { key: shared, orgId: shared });
    },

    async receive(kindName, channelId, request, gone) {
      if (channelId !== shared) return inbox.receive(kindName, channelId, request, gone);
      if (kindName !== kind.name) throw notFound();
      const told = await bySize(
        { orgId: 'a shared app', id: 'a shared app', gone },
        request.body.length,
        oneStep(() => app.read(request)),
      );
      if ('answer' in told) return told.answer;
      const candidates = await genuine(told.appId, request).catch((error: unknown) => {
        throw error instanceof DomainError ? error : asBusy(kind, error);
      });
      if (candidates.length === 0) {
        deps.forgeries.spend(shared);
        throw new DomainError('signature_invalid', 'The request could not be verified.');
      }
      let best: { id: string; weight: number } | null = null;
      // The oldest first: of two that name a place alike it is always the same.
      for (const { row, setup } of candidates) {
        const weight = app.fit(setup, told.places);
        if (weight !== null && (best === null || weight > best.weight)) best = { id: row.id, weight };
      }
      if (best !== null) return inbox.receive(kindName, best.id, request, gone);
      deps.log.info('A delivery of a shared Slack app is for none of its channels.', {
        appId: told.appId,
        ...told.places,
      });
      return acknowledged;
    },
  };
}
