import type { Box } from '../domain/box.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import { within } from '../domain/time-limit.ts';
import { webhookSecretContext } from '../domain/seal-context.ts';
import { UrlRefused, type CheckedUrl } from '../domain/url-guard.ts';
import { retryDelay, type DisabledReason } from '../domain/webhook-endpoint.ts';
import { signWebhook } from '../domain/webhook-signature.ts';
import type { Database } from '../store/database.ts';
import type { AttemptRow, DeliveryRow, WebhookDeliveryStore } from '../store/webhook-deliveries.ts';
import type { WebhookEndpointStore } from '../store/webhook-endpoints.ts';
import type { PushTargets } from './a2a-push-targets.ts';
import { webhookBody } from './webhook-payload.ts';

/** Sends a POST to one of the checked addresses; follows no redirect. Rejects when no answer comes. */
export type PostAndRead = (
  target: CheckedUrl,
  request: {
    headers: Record<string, string>;
    body: string;
    timeoutMs: number;
    signal: AbortSignal;
    answerBytes: number;
  },
) => Promise<{ status: number; retryAfter: string | null; body: Buffer }>;

export interface WebhookWorkDependencies {
  db: Database;
  endpoints: WebhookEndpointStore;
  deliveries: WebhookDeliveryStore;
  targets: PushTargets;
  box: Box;
  post: PostAndRead;
  log: Log;
  /** Told when there is room for one more. */
  wake: () => void;
}

export interface WebhookWork {
  /** Begins to send what is due, as far as there is room, and says how many those are. */
  runDue(): Promise<number>;
  /** Ends what is under way; it is sent after the next start, here or elsewhere. */
  stop(): Promise<void>;
}

interface Result extends Omit<AttemptRow, 'number'> {
  retryAfterMs: number | null;
}

/** Longer than any attempt takes; one whose process died is made again then. */
const leaseMs = 60_000;
const dayMs = 86_400_000;

/**
 * Sends what is in the outbox: each delivery until it is taken, over days, at least once. An attempt that is cut off by
 * the end of its process is made again, so that a receiver may get an event twice, under the same `webhook-id`.
 */
export function createWebhookWork(deps: WebhookWorkDependencies): WebhookWork {
  const { db, endpoints, deliveries, targets, box, log } = deps;
  const closing = new AbortController();
  const underWay = new Set<Promise<void>>();
  /** Of each organisation. */
  const busy = new Map<string, number>();

  async function safely(delivery: DeliveryRow): Promise<void> {
    try {
      await within(leaseMs, send(delivery), () => {
        throw new Error(`It has not ended after ${leaseMs} ms.`);
      });
    } catch (error) {
      // The lease runs out, and somebody tries again.
      log.warn('A webhook could not be dealt with.', { deliveryId: delivery.id, error });
    }
  }

  async function send(delivery: DeliveryRow): Promise<void> {
    const endpoint = await endpoints.get(delivery.endpointId);
    if (endpoint?.status !== 'enabled') return deliveries.release(delivery.id);
    const sealed = await endpoints.secrets(endpoint.id);
    const secrets = sealed.map((one) =>
      box.open(one, webhookSecretContext(endpoint.id, one.name)).toString(),
    );
    const result = await attempt(delivery, endpoint.url, secrets);
    if (closing.signal.aborted && result.status === null) return deliveries.release(delivery.id);
    await conclude(delivery, result);
  }

  async function attempt(delivery: DeliveryRow, url: string, secrets: string[]): Promise<Result> {
    const at = new Date();
    const body = webhookBody(delivery);
    const signed = signWebhook(delivery.id, Math.floor(at.getTime() / 1000), body, secrets);
    const headers = { 'content-type': 'application/json', ...signed };
    const since = () => Math.max(0, Date.now() - at.getTime());
    try {
      const target = await targets.resolve(url);
      const answer = await deps.post(target, {
        headers,
        body,
        timeoutMs: limits.webhookTimeoutMs,
        signal: closing.signal,
        answerBytes: limits.webhookAnswerBytes,
      });
      const isTaken = answer.status >= 200 && answer.status < 300;
      return {
        at,
        latencyMs: since(),
        status: answer.status,
        error: isTaken ? null : `The receiver answered ${answer.status}.`,
        answer: readable(answer.body),
        retryAfterMs: readRetryAfter(answer.retryAfter),
      };
    } catch (error) {
      return {
        at,
        latencyMs: since(),
        status: null,
        error: problemOf(error),
        answer: null,
        retryAfterMs: null,
      };
    }
  }

  /** What became of it, in one transaction. */
  async function conclude(delivery: DeliveryRow, { retryAfterMs, ...result }: Result): Promise<void> {
    const { id, endpointId, orgId } = delivery;
    await db.tx(async () => {
      // First, as whoever changes the endpoint does it, so that nobody waits for the other in a circle.
      await endpoints.lock(endpointId);
      if (!(await deliveries.noted(id, delivery.attempts, result))) return;
      if (result.error === null) {
        await deliveries.end(id, 'delivered');
        return endpoints.succeeded(endpointId);
      }
      log.info('A webhook was not taken.', { deliveryId: id, endpointId, problem: result.error });
      const delayMs = retryDelay(delivery.attempts + 1, retryAfterMs, Math.random());
      if (result.status === 410 || delayMs === null) await deliveries.end(id, 'failed');
      else await deliveries.retryIn(id, delayMs);
      const since = await endpoints.failed(endpointId);
      if (since === null) return;
      const isFailing = Date.now() - since.getTime() > limits.webhookFailingDays * dayMs;
      const reason: DisabledReason | null = result.status === 410 ? 'gone' : isFailing ? 'failing' : null;
      if (reason === null) return warn(endpointId, since);
      log.warn('A webhook endpoint was disabled.', { endpointId, reason });
      await endpoints.setStatus(endpointId, 'disabled', reason);
      const data = { endpointId, reason };
      await deliveries.tellOthers({ endpointId, orgId, type: 'webhook_endpoint.disabled', data });
    });
  }

  /** Tells the operator, before it is disabled; the organisation sees `failingSince`. */
  async function warn(endpointId: string, failingSince: Date): Promise<void> {
    const failingMs = Date.now() - failingSince.getTime();
    const days = limits.webhookWarningDays.findLast((each) => failingMs > each * dayMs);
    if (days === undefined || !(await endpoints.warned(endpointId, days))) return;
    const disabledAfter = new Date(failingSince.getTime() + limits.webhookFailingDays * dayMs);
    log.warn('A webhook endpoint takes nothing and will be disabled.', {
      endpointId,
      failingSince: failingSince.toISOString(),
      disabledAfter: disabledAfter.toISOString(),
    });
  }

  function begin(delivery: DeliveryRow): void {
    const { orgId } = delivery;
    busy.set(orgId, (busy.get(orgId) ?? 0) + 1);
    const sending = safely(delivery).finally(() => {
      underWay.delete(sending);
      const left = busy.get(orgId)! - 1;
      if (left > 0) busy.set(orgId, left);
      else busy.delete(orgId);
      deps.wake();
    });
    underWay.add(sending);
  }

  return {
    async runDue() {
      const limit = limits.webhookRequests - underWay.size;
      if (limit <= 0 || closing.signal.aborted) return 0;
      const full = [...busy].filter(([, count]) => count >= limits.webhookRequestsPerOrg);
      const claimed = await deliveries.claim({
        limit,
        perEndpoint: limits.webhookRequestsPerEndpoint,
        perOrg: limits.webhookRequestsPerOrg,
        leftOut: full.map(([orgId]) => orgId),
        leaseMs,
      });
      claimed.forEach(begin);
      return claimed.length;
    },

    async stop() {
      closing.abort();
      await Promise.all(underWay);
    },
  };
}

/** In words that tell nothing of what only the operator may know. */
function problemOf(error: unknown): string {
  if (error instanceof UrlRefused) return error.message;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (error instanceof Error && (error.name === 'TimeoutError' || error.name === 'AbortError'))
    return `No answer came within ${limits.webhookTimeoutMs / 1000} seconds.`;
  return code === '' ? 'No answer came.' : `No connection (${code}).`;
}

/** What PostgreSQL and a terminal can show. */
function readable(bytes: Buffer): string {
  // oxlint-disable-next-line no-control-regex
  return bytes.toString('utf8').replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, '\ufffd');
}

/** Seconds or a date (RFC 9110, section 10.2.3); null when it is neither. */
function readRetryAfter(text: string | null): number | null {
  if (text === null) return null;
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : Math.max(0, at - Date.now());
}
