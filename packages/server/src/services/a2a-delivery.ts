import type { Box } from '../domain/box.ts';
import type { ConversationEvent } from '../domain/events.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import { within } from '../domain/time-limit.ts';
import { pushConfigContext } from '../domain/seal-context.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import type { CheckedUrl } from '../domain/url-guard.ts';
import type { A2aPushStore, PushConfigRow } from '../store/a2a-push.ts';
import type { A2aTaskStore } from '../store/a2a-tasks.ts';
import type { PushConfig } from './a2a-api.ts';
import type { PushTargets } from './a2a-push-targets.ts';

/** Sends a POST to one of the checked addresses; follows no redirect. Rejects when no answer comes. */
export type PostTo = (
  target: CheckedUrl,
  request: { headers: Record<string, string>; body: string; timeoutMs: number; signal: AbortSignal },
) => Promise<{ status: number }>;

export interface Notification {
  /** The seq of the event that it tells. */
  seq: number;
  body: string;
  contentType: string;
}

/** What a receiver is told of the events of a run after `afterSeq`; the events are all of the run's, as in a task. */
export type RenderNotifications = (
  events: ConversationEvent[],
  task: { taskId: string; contextId: string; version: '1.0' | '0.3'; afterSeq: number },
) => Promise<Notification[]>;

export interface DeliveryDependencies {
  tasks: A2aTaskStore;
  pushes: A2aPushStore;
  targets: PushTargets;
  box: Box;
  /** Of the process that sends; no other process has it at the same time. */
  nodeId: string;
  post: PostTo;
  render: RenderNotifications;
  log: Log;
}

export interface A2aDelivery {
  /** Begins to send what is due, as far as there is room; nothing has to be looked for again at once. */
  runDue(): Promise<number>;
  /** Resolves when what is under way has ended; what was not sent is sent after the next start, here or elsewhere. */
  stop(): Promise<void>;
}

const leaseMs = 60_000;
const retryMs = [1_000, 4_000, 15_000, 60_000, 300_000, 1_800_000, 3_600_000, 7_200_000];
/** For all that one configuration is sent in one go; nothing that hangs keeps the room of another for longer. */
const sendMs = 600_000;
const purgeEveryMs = 600_000;

/**
 * Sends the updates of tasks to where their clients want them. The log of events is the queue and each configuration
 * holds how far it was sent, so that nothing is lost with a process; a lease sees to it that one replica sends. An
 * update is sent until its receiver says 2xx, in order, and may come twice when a process dies in between.
 */
export function createA2aDelivery(deps: DeliveryDependencies): A2aDelivery {
  const { tasks, pushes, targets, box, nodeId, log } = deps;
  const closing = new AbortController();
  const underWay = new Map<Promise<void>, PushConfigRow>();
  let purgedAt = 0;
  let isFresh = true;

  async function runDue(): Promise<number> {
    if (closing.signal.aborted) return 0;
    if (isFresh) await pushes.releaseAll(nodeId);
    isFresh = false;
    if (Date.now() - purgedAt > purgeEveryMs) {
      purgedAt = Date.now();
      await pushes.purge(limits.pushConfigDays);
    }
    const most = limits.pushRequests;
    if (underWay.size >= most.ofAll) return 0;
    const claimed = await pushes.claim(nodeId, { most, underWay: [...underWay.values()], leaseMs });
    for (const row of claimed) {
      const sending = within(sendMs, send(row), () => {
        throw new Error(`It has not ended after ${sendMs} ms.`);
      }).catch((error: unknown) => {
        // The lease runs out, and somebody tries again.
        log.warn('A push notification could not be dealt with.', { configId: row.id, error: String(error) });
      });
      underWay.set(sending, row);
      void sending.finally(() => underWay.delete(sending));
    }
    // The next look comes at its own time, so that updates that follow each other closely are told together.
    return 0;
  }

  async function send(row: PushConfigRow): Promise<void> {
    const events = await tasks.events(row, [row.runId], true);
    const contextId =
      (await tasks.contextIds([row.conversationId])).get(row.conversationId) ?? row.conversationId;
    const { runId: taskId, version, deliveredSeq: afterSeq } = row;
    const notifications = await deps.render(events, { taskId, contextId, version, afterSeq });
    const secret = JSON.parse(box.open(row, pushConfigContext(row.id)).toString()) as PushConfig['secret'];
    let { attempts } = row;
    for (const notification of notifications) {
      const problem = await attempt(row.url, secret, notification);
      if (closing.signal.aborted) return pushes.release(row.id);
      if (problem !== null) return failed(row, attempts + 1, problem);
      if (!(await pushes.advance(row.id, notification.seq, leaseMs))) return;
      attempts = 0;
    }
    const last = events.at(-1);
    const isOver = last !== undefined && /^run\.(completed|failed|cancelled)$/.test(last.type);
    if (isOver) return pushes.end(row.id, null);
    if (last && last.seq > (notifications.at(-1)?.seq ?? 0)) await pushes.advance(row.id, last.seq, leaseMs);
    await pushes.release(row.id);
  }

  /** What went wrong, in words that tell no secret; null = it was taken. */
  async function attempt(
    url: string,
    { token, authentication }: PushConfig['secret'],
    { body, contentType }: Notification,
  ): Promise<string | null> {
    const headers: Record<string, string> = { 'Content-Type': contentType };
    if (authentication)
      headers['Authorization'] = `${authentication.scheme} ${authentication.credentials}`.trim();
    if (token !== '') headers['X-A2A-Notification-Token'] = token;
    try {
      const target = await targets.resolve(url);
      const { status } = await deps.post(target, {
        headers,
        body,
        timeoutMs: limits.pushTimeoutMs,
        signal: closing.signal,
      });
      return status >= 200 && status < 300 ? null : `The receiver answered ${status}.`;
    } catch (error) {
      if (error instanceof UrlRefused) return error.message;
      return error instanceof Error && 'code' in error
        ? `No connection (${String(error.code)}).`
        : 'No answer came.';
    }
  }

  /** `attempts` counts those of this update only, this one among them. */
  async function failed(row: PushConfigRow, attempts: number, problem: string): Promise<void> {
    log.info('A push notification was not taken.', { runId: row.runId, configId: row.id, attempts, problem });
    if (attempts >= limits.pushAttempts) return pushes.end(row.id, problem);
    const delay = retryMs[Math.min(attempts - 1, retryMs.length - 1)]!;
    await pushes.retry(row.id, problem, delay * (0.8 + Math.random() * 0.4));
  }

  return {
    runDue,
    async stop() {
      closing.abort();
      await Promise.all(underWay.keys());
    },
  };
}
