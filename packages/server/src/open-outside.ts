import type { SmtpConfig } from './config-smtp.ts';
import type { EndStep } from './end-steps.ts';
import { openChannels } from './open-channels.ts';
import { openSmtp } from './open-smtp.ts';
import { openSchedules } from './open-schedules.ts';
import { openWebhookEndpoints } from './open-webhook-endpoints.ts';
import type { ScheduleStore } from './store/schedules.ts';

/** For each part when it ends. */
const END_MS = 3_000;

/** What makes agents work without a request to the API, and tells other systems of it. */
export function openOutside(
  deps: Parameters<typeof openChannels>[0] & { schedules: ScheduleStore; smtp: SmtpConfig | null },
): {
  services: {
    channels: ReturnType<typeof openChannels>['service'];
    inboundEvents: ReturnType<typeof openChannels>['inboundEvents'];
    schedules: ReturnType<typeof openSchedules>['service'];
    webhookEndpoints: ReturnType<typeof openWebhookEndpoints>['service'];
  };
  edge: ReturnType<typeof openChannels>['edge'];
  start(): Promise<void>;
  purge(): Promise<void>;
  endSteps: EndStep[];
} {
  const channels = openChannels(deps);
  const smtp = openSmtp({ config: deps.smtp, channels: deps.channels, inbox: channels.inbox, log: deps.log });
  const schedules = openSchedules(deps);
  const webhooks = openWebhookEndpoints(deps);
  return {
    services: {
      channels: channels.service,
      inboundEvents: channels.inboundEvents,
      schedules: schedules.service,
      webhookEndpoints: webhooks.service,
    },
    edge: channels.edge,
    async start() {
      channels.worker.start();
      schedules.worker.start();
      webhooks.worker.start();
      await smtp.start();
    },
    async purge() {
      await channels.purge();
      await schedules.purge();
      await webhooks.purge();
    },
    endSteps: [
      ['mail over SMTP', () => smtp.close(), END_MS],
      ['channels', () => channels.close(), END_MS],
      ['schedules', () => schedules.worker.stop(), END_MS],
      ['webhooks', () => webhooks.close(), END_MS],
    ],
  };
}
