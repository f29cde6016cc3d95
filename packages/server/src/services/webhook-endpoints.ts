import { randomBytes } from 'node:crypto';
import { requireEdit, requireOrgBound } from '../domain/access.ts';
import type { Box } from '../domain/box.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { webhookSecretContext } from '../domain/seal-context.ts';
import { readName } from '../domain/text.ts';
import { testEventType, webhookEventTypes } from '../domain/webhook-endpoint.ts';
import type { AgentStore } from '../store/agents.ts';
import { againIfWithdrawn } from '../store/again.ts';
import type { Database } from '../store/database.ts';
import type { DeliveryRow, WebhookDeliveryStore } from '../store/webhook-deliveries.ts';
import type { EndpointRow, SecretSlot, WebhookEndpointStore } from '../store/webhook-endpoints.ts';
import type { PushTargets } from './a2a-push-targets.ts';
import { pageById } from './paging.ts';
import type { EndpointInput, WebhookEndpointsService } from './webhook-endpoints-api.ts';

export interface WebhookEndpointsDependencies {
  db: Database;
  agents: AgentStore;
  endpoints: WebhookEndpointStore;
  deliveries: WebhookDeliveryStore;
  targets: PushTargets;
  box: Box;
  /** Held until the end of the transaction: what is sealed in it is sealed under a key that stays. */
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  /** Told when something can be sent at once. */
  wake: () => void;
}

type Settings = Pick<EndpointRow, 'name' | 'url' | 'events' | 'agentId'>;

export function createWebhookEndpoints(deps: WebhookEndpointsDependencies): WebhookEndpointsService {
  const { db, agents, endpoints, deliveries, box, cursors } = deps;

  /** They are the organisation's: whoever may not see them all is told so before anything is looked up. */
  async function own(p: Principal, id: string): Promise<EndpointRow> {
    requireEdit(p);
    requireOrgBound(p);
    const found = isId(id) ? await endpoints.get(id) : null;
    if (found?.orgId !== p.orgId) throw notFound();
    return found;
  }

  async function change(
    p: Principal,
    id: string,
    work: (before: EndpointRow) => Promise<void>,
  ): Promise<EndpointRow> {
    await own(p, id);
    return db.tx(async () => {
      const before = await endpoints.lock(id);
      if (!before) throw notFound();
      await work(before);
      db.afterCommit(deps.wake);
      return (await endpoints.get(id))!;
    });
  }

  async function readSettings(p: Principal, input: EndpointInput): Promise<Settings> {
    await deps.targets.check(input.url);
    const agentId = input.agentId ?? null;
    const agent = agentId !== null && isId(agentId) ? await agents.get(agentId) : null;
    if (agentId !== null && agent?.orgId !== p.orgId)
      throw invalid('agentId', 'is no agent of this organisation.');
    return {
      name: readName('name', input.name ?? new URL(input.url).host.slice(0, limits.nameChars)),
      url: input.url,
      events: readEvents(input.events),
      agentId,
    };
  }

  async function putSecret(endpointId: string, name: SecretSlot, value: string, validUntil: Date | null) {
    const sealed = box.seal(Buffer.from(value), webhookSecretContext(endpointId, name));
    await endpoints.putSecret(endpointId, { name, validUntil, ...sealed });
  }

  async function delivered(id: string, deliveryId: string): Promise<DeliveryRow> {
    const found = isId(deliveryId) ? await deliveries.get(id, deliveryId) : null;
    if (!found) throw notFound();
    return found;
  }

  function requireEnabled({ status }: EndpointRow): void {
    if (status === 'disabled')
      throw new DomainError('conflict', 'The endpoint is disabled; enable it first.');
  }

  return {
    async list(p, query) {
      requireEdit(p);
      requireOrgBound(p);
      return pageById(cursors, `webhook-endpoints:${p.orgId}`, query, (at) => endpoints.list(p.orgId, at));
    },

    get: own,

    async create(p, input) {
      requireEdit(p);
      requireOrgBound(p);
      const settings = await readSettings(p, input);
      const id = newId();
      const secret = makeSecret();
      const endpoint = await db.tx(async () => {
        if ((await endpoints.countLocked(p.orgId)) >= limits.webhookEndpointsPerOrg) {
          throw new DomainError(
            'conflict',
            `An organisation has at most ${limits.webhookEndpointsPerOrg} webhook endpoints; delete one first.`,
          );
        }
        await deps.holdEncryptionKey();
        await endpoints.insert({ id, orgId: p.orgId, ...settings });
        await putSecret(id, 'current', secret, null);
        return (await endpoints.get(id))!;
      });
      return { endpoint, secret };
    },

    async update(p, id, patch) {
      const before = await own(p, id);
      const settings = await readSettings(p, { ...before, ...patch });
      return change(p, id, () => endpoints.update(id, settings));
    },

    async remove(p, id) {
      await own(p, id);
      await againIfWithdrawn(() => db.tx(() => endpoints.remove(id)));
    },

    enable: (p, id) =>
      change(p, id, async ({ status }) => {
        if (status === 'disabled') await endpoints.setStatus(id, 'enabled', null);
      }),

    disable: (p, id) =>
      change(p, id, async ({ status }) => {
        if (status === 'enabled') await endpoints.setStatus(id, 'disabled', null);
      }),

    async rotateSecret(p, id) {
      const secret = makeSecret();
      const endpoint = await change(p, id, async () => {
        await deps.holdEncryptionKey();
        const [before] = await endpoints.secrets(id);
        if (before?.name === 'current') {
          const value = box.open(before, webhookSecretContext(id, 'current')).toString();
          const until = new Date(Date.now() + limits.previousSecretHours * 3_600_000);
          await putSecret(id, 'previous', value, until);
        }
        await putSecret(id, 'current', secret, null);
      });
      return { endpoint, secret };
    },

    async test(p, id) {
      const endpoint = await own(p, id);
      requireEnabled(endpoint);
      const row = { id: newId(), endpointId: id, orgId: p.orgId, type: testEventType, data: {} };
      const made = await deliveries.insert({ ...row, at: new Date() });
      db.afterCommit(deps.wake);
      return made;
    },

    async deliveries(p, id, query, state) {
      await own(p, id);
      return pageById(cursors, `webhook-deliveries:${id}:${state ?? ''}`, query, (at) =>
        deliveries.list(id, { ...at, state }),
      );
    },

    async delivery(p, id, deliveryId) {
      await own(p, id);
      const delivery = await delivered(id, deliveryId);
      return { delivery, attempts: await deliveries.attempts(deliveryId) };
    },

    async retry(p, id, deliveryId) {
      const endpoint = await own(p, id);
      await delivered(id, deliveryId);
      requireEnabled(endpoint);
      // As it is by this statement: a moment later it may have been taken.
      const delivery = await deliveries.again(deliveryId);
      if (!delivery) throw new DomainError('conflict', 'An attempt is under way; wait for its end.');
      db.afterCommit(deps.wake);
      return delivery;
    },

    async retrySince(p, id, since) {
      requireEnabled(await own(p, id));
      const count = await deliveries.againSince(id, since);
      db.afterCommit(deps.wake);
      return count;
    },
  };
}

function makeSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

function readEvents(events: readonly string[]): string[] {
  const known: readonly string[] = ['*', ...webhookEventTypes];
  const unknown = events.find((type) => !known.includes(type));
  if (unknown !== undefined || events.length === 0)
    throw invalid('events', `must be a list of ${known.join(', ')}.`);
  return [...new Set(events)].sort();
}
