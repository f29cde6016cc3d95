import { kinds } from './channels/kinds.ts';
import { slackApp } from './channels/slack/route.ts';
import { samples } from './channels/samples/samples.ts';
import { openChannelMail } from './channels/mail/channel-mail.ts';
import type { Box } from './domain/box.ts';
import { limits } from './domain/limits.ts';
import type { Log } from './domain/log.ts';
import type { Cursors } from './domain/paging.ts';
import type { UrlGuard } from './domain/url-guard.ts';
import { createWebhookEdge } from './edges/webhooks.ts';
import { createDueWorker } from './runtime/due-worker.ts';
import type { EventsService, RunsService, SandboxFilesService } from './services/api.ts';
import { createAnswerStreams } from './services/answer-streams.ts';
import { createAttachments } from './services/attachments.ts';
import { createBacklog, type BacklogDependencies } from './services/backlog.ts';
import { createChannelTests } from './services/channel-tests.ts';
import { createChannels } from './services/channels.ts';
import { createForgeryBudget } from './services/forgery-budget.ts';
import { createGuardedCaller } from './services/guarded-call.ts';
import { createInbox } from './services/inbox.ts';
import { createInboundEvents } from './services/inbound-events.ts';
import { createInboundPace } from './services/inbound-pace.ts';
import { createInboundWork, type InboundWork } from './services/inbound-work.ts';
import { keepSetups } from './services/kept-setups.ts';
import { withSharedSlack } from './services/shared-slack.ts';
import type { AgentStore } from './store/agents.ts';
import type { ChannelStore } from './store/channels.ts';
import type { Database } from './store/database.ts';
import { createChannelAnswerStore } from './store/channel-answers.ts';
import { createInboundEventStore } from './store/inbound-events.ts';
import { createInboundQueue } from './store/inbound-queue.ts';

/** What reaches agents from other systems: the resource, its webhooks, the work on them, and the answers. */
export function openChannels(deps: {
  db: Database;
  nodeId: string;
  agents: AgentStore;
  channels: ChannelStore;
  runs: Pick<RunsService, 'send' | 'outcome'>;
  runEvents: Pick<EventsService, 'follow' | 'after'>;
  box: Box;
  holdEncryptionKey: () => Promise<void>;
  cursors: Cursors;
  guard: UrlGuard;
  files: Pick<SandboxFilesService, 'write'>;
  baseUrl: string;
  /** Default: `limits.inboundAttemptSeconds`. */
  longestAttemptMs?: number;
  /** Default: `limits.inboundBacklogPerOrg`, counted every five seconds. */
  backlog?: Pick<BacklogDependencies, 'perOrg' | 'countEveryMs'>;
  /** Default: half of what Slack waits for. */
  answerMs?: number;
  log: Log;
}) {
  const { db, agents, channels, cursors, guard } = deps;
  const log = deps.log.child({ part: 'channels' });
  const events = createInboundEventStore(db);
  const queue = createInboundQueue(db);
  const caller = createGuardedCaller(guard);
  const mail = openChannelMail();
  // A change holds for the very next delivery, since whoever has rotated a secret or resumed a channel sends one at once.
  const service = createChannels({ ...deps, kinds, onChanged: (id) => setups.forget(id) });
  const setups = keepSetups(service);
  const worker = createDueWorker({ work: () => work, lookEveryMs: 500, log });
  const answers = createChannelAnswerStore(db);
  const streams = createAnswerStreams({
    ...deps,
    queue,
    answers,
    setups,
    kinds,
    caller,
    events: deps.runEvents,
    log,
  });
  const pace = createInboundPace();
  const work: InboundWork = createInboundWork({
    db,
    nodeId: deps.nodeId,
    queue,
    answers,
    streams,
    pace,
    setups,
    kinds,
    mail,
    runs: deps.runs,
    caller,
    attachments: createAttachments({ caller, files: deps.files, log }),
    log,
    wake: worker.wake,
    ...(deps.longestAttemptMs !== undefined && { longestAttemptMs: deps.longestAttemptMs }),
  });
  const forgeries = createForgeryBudget();
  const count = (orgId: string, atMost: number) => db.outside(() => queue.waiting(orgId, atMost));
  const inbox = createInbox({
    forgeries,
    pace,
    backlog: createBacklog({ ...deps.backlog, count, now: Date.now }),
    channels,
    setups,
    events,
    kinds,
    caller,
    log,
    onStored: worker.wake,
    ...(deps.answerMs !== undefined && { answerMs: deps.answerMs }),
  });
  const open = withSharedSlack({ inbox, channels, setups, kind: kinds.slack, app: slackApp, forgeries, log });
  const tests = createChannelTests({
    channels: service,
    setups: service,
    samples,
    inbox,
    events,
    baseUrl: deps.baseUrl,
  });
  return {
    service: { ...service, ...tests },
    inboundEvents: createInboundEvents({
      agents,
      events,
      cursors,
      wake: () => db.afterCommit(worker.wake),
    }),
    events,
    inbox: { ...inbox, ...open },
    edge: createWebhookEdge({ inbox: open, baseUrl: deps.baseUrl }),
    worker,
    purge: () => events.purgeBodies(limits.inboundBodyDays),
    async close(): Promise<void> {
      await worker.stop();
      // At once: a call that hangs must not keep the other from beginning nothing any more.
      await Promise.all([streams.stop(), work.stop()]);
      await mail.close();
    },
  };
}
