import type { GrpcAsked } from './a2a-grpc.ts';

interface Ids {
  runId: string;
  conversationId: string;
}

const text = { content: { $case: 'text', value: 'x' }, metadata: undefined, filename: '', mediaType: '' };
const message = (taskId: string) => ({
  messageId: 'm-1',
  contextId: '',
  taskId,
  role: 1,
  parts: [text],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
});
const send = ({ runId }: Ids) => ({ tenant: '', message: message(runId), configuration: undefined });
const message03 = (taskId: string) => ({
  messageId: 'm-1',
  contextId: '',
  taskId,
  role: 1,
  content: [{ part: { $case: 'text', value: 'x' } }],
  extensions: [],
});
const send03 = ({ runId }: Ids) => ({ request: message03(runId), configuration: undefined });
const task = ({ runId }: Ids) => ({ tenant: '', id: runId });
const name03 = ({ runId }: Ids) => ({ name: `tasks/${runId}` });
const url = 'https://example.com/x';
const push03 = ({ runId }: Ids) => `tasks/${runId}/pushNotificationConfigs`;

const byMethod: [GrpcAsked['version'], string, (ids: Ids) => unknown][] = [
  ['1.0', 'GetTask', task],
  ['1.0', 'CancelTask', task],
  ['1.0', 'SubscribeToTask', task],
  ['1.0', 'SendMessage', send],
  ['1.0', 'SendStreamingMessage', send],
  [
    '1.0',
    'CreateTaskPushNotificationConfig',
    ({ runId }) => ({ tenant: '', id: '', taskId: runId, url, token: '' }),
  ],
  ['1.0', 'GetTaskPushNotificationConfig', ({ runId }) => ({ tenant: '', taskId: runId, id: 'a' })],
  [
    '1.0',
    'ListTaskPushNotificationConfigs',
    ({ runId }) => ({ tenant: '', taskId: runId, pageSize: 0, pageToken: '' }),
  ],
  ['1.0', 'DeleteTaskPushNotificationConfig', ({ runId }) => ({ tenant: '', taskId: runId, id: 'a' })],
  [
    '1.0',
    'ListTasks',
    ({ conversationId }) => ({ tenant: '', contextId: conversationId, status: 0, pageToken: '' }),
  ],
  ['0.3', 'GetTask', (ids) => ({ ...name03(ids), historyLength: 0 })],
  ['0.3', 'CancelTask', name03],
  ['0.3', 'TaskSubscription', name03],
  ['0.3', 'SendMessage', send03],
  ['0.3', 'SendStreamingMessage', send03],
  [
    '0.3',
    'CreateTaskPushNotificationConfig',
    ({ runId }) => ({
      parent: `tasks/${runId}`,
      configId: 'a',
      config: { name: '', pushNotificationConfig: { id: 'a', url, token: '' } },
    }),
  ],
  ['0.3', 'GetTaskPushNotificationConfig', (ids) => ({ name: `${push03(ids)}/a` })],
  [
    '0.3',
    'ListTaskPushNotificationConfig',
    ({ runId }) => ({ parent: `tasks/${runId}`, pageSize: 0, pageToken: '' }),
  ],
  ['0.3', 'DeleteTaskPushNotificationConfig', (ids) => ({ name: `${push03(ids)}/a` })],
];

/** Every operation of A2A over gRPC that names a task or a context. */
export const grpcOperations = byMethod.map(([version = '1.0', method, request]) => ({
  name: `A2A ${version} gRPC ${method}`,
  version,
  method,
  request,
}));
