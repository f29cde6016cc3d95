import { isRecord } from './guard.ts';

type Fields = Record<string, unknown>;

/** The HTTP+JSON binding of A2A 0.3 speaks the JSON of its protobuf schema, which is not the JSON of JSON-RPC. */
function field(fields: Fields, name: string): unknown {
  return fields[name] ?? fields[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] ?? undefined;
}

function defined(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** A body of `message:send` as the parameters of `message/send`. What is no such thing is left for the guard to refuse. */
export function sendFromProto(body: Fields): Fields {
  const message = body['message'] ?? body['request'];
  const configuration = body['configuration'];
  return defined({
    message: isRecord(message) ? messageFromProto(message) : message,
    configuration: isRecord(configuration) ? configurationFromProto(configuration) : configuration,
    metadata: body['metadata'],
  });
}

function messageFromProto(message: Fields): Fields {
  const parts = message['content'] ?? message['parts'];
  const role = message['role'];
  return defined({
    kind: 'message',
    messageId: field(message, 'messageId'),
    contextId: field(message, 'contextId') || undefined,
    taskId: field(message, 'taskId') || undefined,
    role: role === 'ROLE_USER' || role === 1 ? 'user' : role,
    parts: Array.isArray(parts) ? parts.map(partFromProto) : parts,
    metadata: message['metadata'] ?? undefined,
    extensions: message['extensions'],
  });
}

function partFromProto(part: unknown): unknown {
  if (!isRecord(part) || part['kind'] !== undefined) return part;
  const { text, file, data, metadata } = part;
  if (text !== undefined) return defined({ kind: 'text', text, metadata });
  if (isRecord(data))
    return defined({ kind: 'data', data: isRecord(data['data']) ? data['data'] : data, metadata });
  if (!isRecord(file)) return part;
  const given = {
    bytes: field(file, 'fileWithBytes') ?? file['bytes'],
    uri: field(file, 'fileWithUri') ?? file['uri'],
    mimeType: field(file, 'mimeType') || undefined,
    name: file['name'] || undefined,
  };
  return defined({ kind: 'file', file: defined(given), metadata });
}

function configurationFromProto(configuration: Fields): Fields {
  const push = field(configuration, 'pushNotification') ?? field(configuration, 'pushNotificationConfig');
  return defined({
    acceptedOutputModes: field(configuration, 'acceptedOutputModes'),
    historyLength: field(configuration, 'historyLength'),
    blocking: configuration['blocking'],
    pushNotificationConfig: push,
  });
}

/** The configuration in a body: bare, or in one of the wrappings in which clients send it. */
export function pushConfigFromProto(body: Fields): unknown {
  const config = isRecord(body['config']) ? body['config'] : body;
  const inner = field(config, 'pushNotificationConfig') ?? (config['url'] === undefined ? undefined : config);
  if (!isRecord(inner)) return inner;
  const name = typeof config['name'] === 'string' ? config['name'].split('/').at(-1) : undefined;
  const id = inner['id'] || field(body, 'configId') || name || undefined;
  return defined({
    id,
    url: inner['url'],
    token: inner['token'] || undefined,
    authentication: inner['authentication'],
  });
}

/** A task, message or update as JSON-RPC of 0.3 has it, in the JSON of the schema. */
export function toProto(value: Fields): Fields {
  switch (value['kind']) {
    case 'task':
      return taskToProto(value);
    case 'message':
      return messageToProto(value);
    case 'status-update': {
      const { taskId, contextId, status, metadata, final } = value;
      return defined({ taskId, contextId, status: statusToProto(status as Fields), final, metadata });
    }
    default: {
      const { taskId, contextId, artifact, append, lastChunk, metadata } = value;
      return defined({
        taskId,
        contextId,
        artifact: artifactToProto(artifact as Fields),
        append,
        lastChunk,
        metadata,
      });
    }
  }
}

/** With the name of what it is, as in an answer to a send and in a stream. */
export function wrapped(value: Fields): Fields {
  const names: Record<string, string> = { task: 'task', message: 'msg', 'status-update': 'statusUpdate' };
  return { [names[String(value['kind'])] ?? 'artifactUpdate']: toProto(value) };
}

function taskToProto(task: Fields): Fields {
  const artifacts = (task['artifacts'] as Fields[] | undefined)?.map(artifactToProto);
  const history = (task['history'] as Fields[] | undefined)?.map(messageToProto);
  const { id, contextId, metadata } = task;
  return defined({
    id,
    contextId,
    status: statusToProto(task['status'] as Fields),
    artifacts,
    history,
    metadata,
  });
}

function statusToProto({ state, message, timestamp }: Fields): Fields {
  const name = state === 'canceled' ? 'CANCELLED' : String(state).toUpperCase().replace('-', '_');
  const update = isRecord(message) ? messageToProto(message) : undefined;
  return defined({ state: `TASK_STATE_${name}`, update, timestamp });
}

function messageToProto(message: Fields): Fields {
  const { messageId, contextId, taskId, role, parts, metadata, extensions } = message;
  return defined({
    messageId,
    contextId,
    taskId,
    role: role === 'agent' ? 'ROLE_AGENT' : 'ROLE_USER',
    content: (parts as Fields[]).map(partToProto),
    metadata,
    extensions,
  });
}

function artifactToProto({ artifactId, name, description, parts, metadata, extensions }: Fields): Fields {
  return defined({
    artifactId,
    name,
    description,
    parts: (parts as Fields[]).map(partToProto),
    metadata,
    extensions,
  });
}

function partToProto({ kind, text, file, data, metadata }: Fields): Fields {
  if (kind === 'text') return defined({ text, metadata });
  if (kind === 'data') return defined({ data: { data }, metadata });
  const { bytes, uri, mimeType, name } = file as Fields;
  return defined({ file: defined({ fileWithBytes: bytes, fileWithUri: uri, mimeType, name }), metadata });
}

export function pushConfigToProto({ taskId, pushNotificationConfig }: Fields): Fields {
  const config = pushNotificationConfig as Fields;
  return { name: `tasks/${taskId}/pushNotificationConfigs/${config['id']}`, pushNotificationConfig: config };
}
