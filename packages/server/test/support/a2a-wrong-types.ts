import { randomUUID } from 'node:crypto';
import { message } from './a2a-world.ts';

/** A method, its parameters, and the path of the one that has a value of another type than the protocol's. */
type Case = [method: string, params: object, path: string];

/** By version of the protocol. */
export function wrongTypes(): Record<'1.0' | '0.3', Case[]> {
  const odd = { toString: 1 };
  const id = randomUUID();
  const send = (more: Record<string, unknown>) => ({ message: message('x', more) });
  const newer: Case[] = [
    ['SendMessage', { ...send({}), tenant: odd }, 'tenant'],
    ['SendMessage', { ...send({}), configuration: { acceptedOutputModes: [odd] } }, 'configuration'],
    ['SendMessage', send({ extensions: [odd] }), 'message.extensions'],
    ['SendMessage', send({ parts: [{ text: 'x', filename: odd }] }), 'message.parts[0].filename'],
    [
      'SendMessage',
      {
        ...send({}),
        configuration: { taskPushNotificationConfig: { url: 'https://example.com', taskId: odd } },
      },
      'configuration.taskPushNotificationConfig.taskId',
    ],
    ['ListTasks', { tenant: odd }, 'tenant'],
    ['GetTask', { id, tenant: odd }, 'tenant'],
    ['CancelTask', { id, tenant: [odd] }, 'tenant'],
    ['CreateTaskPushNotificationConfig', { taskId: id, url: 'https://example.com', tenant: odd }, 'tenant'],
    ['GetTaskPushNotificationConfig', { taskId: id, id: 'x', tenant: odd }, 'tenant'],
    ['ListTaskPushNotificationConfigs', { taskId: id, tenant: odd }, 'tenant'],
    ['DeleteTaskPushNotificationConfig', { taskId: id, id: 'x', tenant: odd }, 'tenant'],
  ];
  const older = (more: object, configuration?: object) => ({
    message: { messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text: 'x' }], ...more },
    ...(configuration && { configuration }),
  });
  const file = (fields: object) => older({ parts: [{ kind: 'file', file: { bytes: 'dGNr', ...fields } }] });
  const push = (schemes: unknown) => ({ url: 'https://example.com', authentication: { schemes } });
  const legacy: Case[] = [
    ...[1, {}, []].map((name): Case => ['message/send', file({ name }), 'message.parts[0].file.name']),
    ['message/send', file({ bytes: 'dGNrx' }), 'message.parts[0].file.bytes'],
    ['message/send', file({ bytes: null, uri: 'https://example.com' }), 'message.parts[0].file.bytes'],
    ['message/send', older({}, { acceptedOutputModes: 1 }), 'configuration.acceptedOutputModes'],
    ['message/stream', older({}, { acceptedOutputModes: [odd] }), 'configuration.acceptedOutputModes'],
    ['message/send', older({ extensions: 1 }), 'message.extensions'],
    ['message/send', older({ referenceTaskIds: 1 }), 'message.referenceTaskIds'],
    [
      'message/send',
      older({ parts: [{ kind: 'data', data: {}, metadata: null }] }),
      'message.parts[0].metadata',
    ],
    [
      'message/send',
      older({}, { pushNotificationConfig: push(['Bearer', odd]) }),
      'configuration.pushNotificationConfig.authentication.schemes',
    ],
    ['tasks/pushNotificationConfig/get', { id, pushNotificationConfigId: true }, 'pushNotificationConfigId'],
    [
      'tasks/pushNotificationConfig/delete',
      { id, pushNotificationConfigId: odd },
      'pushNotificationConfigId',
    ],
    [
      'tasks/pushNotificationConfig/delete',
      { id, pushNotificationConfigId: true },
      'pushNotificationConfigId',
    ],
  ];
  return { '1.0': newer, '0.3': legacy };
}
