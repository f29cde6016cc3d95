import { StreamResponse } from '@a2a-js/sdk';
import { V1PushNotificationSerializer } from '@a2a-js/sdk/server';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import type { ConversationEvent } from '../../domain/events.ts';
import type { Notification, RenderNotifications } from '../../services/a2a-delivery.ts';
import { TaskView } from './task-view.ts';

const v1 = new V1PushNotificationSerializer();
const v03 = new V03PushNotificationSerializer();

/** What a receiver of push notifications is told: the same objects as in a stream, in the version of its registration. */
export function renderNotifications(
  events: ConversationEvent[],
  { taskId, contextId, version, afterSeq }: Parameters<RenderNotifications>[1],
): Notification[] {
  const view = new TaskView(taskId, contextId, version);
  const notifications: Notification[] = [];
  for (const event of events) {
    for (const response of view.apply(event)) {
      if (event.seq <= afterSeq) continue;
      notifications.push({ seq: event.seq, ...serialize(response, version, view) });
    }
  }
  return notifications;
}

function serialize(response: StreamResponse, version: '1.0' | '0.3', view: TaskView) {
  // A receiver of 0.3 is sent the whole task each time (A2A 0.3, section 9.5).
  return version === '1.0' ? v1.serialize(response) : v03.serialize(response, view.task());
}
