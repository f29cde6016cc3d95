import type { EndStep } from './end-steps.ts';
import { openChannels } from './open-channels.ts';
import { openSchedules } from './open-schedules.ts';
import type { ScheduleStore } from './store/schedules.ts';

/** For each part when it ends. */
const END_MS = 3_000;

/** What makes agents work without a request to the API, and tells other systems of it. */
export function openOutside(deps: Parameters<typeof openChannels>[0] & { schedules: ScheduleStore }): {
  services: {
    channels: ReturnType<typeof openChannels>['service'];
    inboundEvents: ReturnType<typeof openChannels>['inboundEvents'];
    schedules: ReturnType<typeof openSchedules>['service'];
  };
  edge: ReturnType<typeof openChannels>['edge'];
  start(): void;
  purge(): Promise<void>;
  endSteps: EndStep[];
} {
  const channels = openChannels(deps);
  const schedules = openSchedules(deps);
  return {
    services: {
      channels: channels.service,
      inboundEvents: channels.inboundEvents,
      schedules: schedules.service,
    },
    edge: channels.edge,
    start() {
      channels.worker.start();
      schedules.worker.start();
    },
    async purge() {
      await channels.purge();
      await schedules.purge();
    },
    endSteps: [
      ['channels', () => channels.close(), END_MS],
      ['schedules', () => schedules.worker.stop(), END_MS],
    ],
  };
}
