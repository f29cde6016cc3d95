import {
  checkGetTask,
  checkObject,
  checkPushConfig,
  checkTaskId,
  checkText,
  checkTexts,
  isRecord,
  malformed,
  requireBase64,
} from './guard.ts';
import { requireMediaType } from './parts.ts';

type Fields = Record<string, unknown>;

/** What the SDK's 0.3 layer leaves to others: whatever is wrong with a request is told before anything is done. */
export function checkLegacyParams(method: string, params: unknown): void {
  switch (method) {
    case 'message/send':
    case 'message/stream':
      return checkLegacySend(params);
    case 'tasks/get':
      return checkGetTask(params);
    case 'tasks/cancel':
    case 'tasks/resubscribe':
      return checkTaskId(params);
    case 'tasks/pushNotificationConfig/set':
      return checkLegacyPush(params);
    case 'tasks/pushNotificationConfig/get':
    case 'tasks/pushNotificationConfig/list':
    case 'tasks/pushNotificationConfig/delete':
      checkTaskId(params);
      return void checkText(params as Fields, 'pushNotificationConfigId', 'pushNotificationConfigId', {
        max: 255,
      });
    default:
  }
}

export function checkLegacySend(params: unknown): void {
  if (!isRecord(params)) throw malformed('params', 'must be an object.');
  const { message, configuration } = params;
  if (!isRecord(message)) throw malformed('message', 'is required.');
  requireText(message['messageId'], 'message.messageId', 255);
  if (message['role'] !== 'user') throw malformed('message.role', 'must be "user".');
  for (const name of ['contextId', 'taskId'])
    if (message[name] !== undefined && message[name] !== null)
      requireText(message[name], `message.${name}`, 512, 0);
  checkTexts(message, 'extensions', 'message.extensions');
  checkTexts(message, 'referenceTaskIds', 'message.referenceTaskIds');
  checkObject(message, 'metadata', 'message.metadata');
  checkObject(params, 'metadata', 'metadata');
  const { parts } = message;
  if (!Array.isArray(parts) || parts.length === 0 || parts.length > 100)
    throw malformed('message.parts', 'must have 1 to 100 parts.');
  parts.forEach((part: unknown, index) => checkLegacyPart(part, `message.parts[${index}]`));
  if (configuration === undefined || configuration === null) return;
  if (!isRecord(configuration)) throw malformed('configuration', 'must be an object.');
  checkGetTask({ id: 'any', historyLength: configuration['historyLength'] });
  checkTexts(configuration, 'acceptedOutputModes', 'configuration.acceptedOutputModes');
  const push = configuration['pushNotificationConfig'];
  if (push !== undefined && push !== null) checkLegacyConfig(push, 'configuration.pushNotificationConfig');
}

function checkLegacyPart(part: unknown, path: string): void {
  if (!isRecord(part)) throw malformed(path, 'must be an object.');
  checkObject(part, 'metadata', `${path}.metadata`);
  switch (part['kind']) {
    case 'text':
      if (typeof part['text'] !== 'string') throw malformed(`${path}.text`, 'must be a text.');
      return;
    case 'data':
      if (!isRecord(part['data'])) throw malformed(`${path}.data`, 'must be an object.');
      // Of data the SDK looks into it, and null is not the same to it as nothing.
      if (part['metadata'] === null) throw malformed(`${path}.metadata`, 'must be an object, or left out.');
      return;
    case 'file': {
      const { file } = part;
      if (!isRecord(file)) throw malformed(`${path}.file`, 'must be an object.');
      const { bytes, uri, mimeType } = file;
      // To the SDK a file has bytes as soon as it has a field of this name.
      if (bytes !== undefined && typeof bytes !== 'string')
        throw malformed(`${path}.file.bytes`, 'must be a text, or left out.');
      if ((typeof bytes === 'string') === (typeof uri === 'string'))
        throw malformed(`${path}.file`, 'must have either bytes or uri.');
      if (typeof bytes === 'string') requireBase64(bytes, `${path}.file.bytes`);
      if (typeof uri === 'string' && !URL.canParse(uri))
        throw malformed(`${path}.file.uri`, 'must be an absolute URL.');
      if (mimeType !== undefined && mimeType !== null && typeof mimeType !== 'string')
        throw malformed(`${path}.file.mimeType`, 'must be a text.');
      checkText(file, 'name', `${path}.file.name`, { max: 255 });
      return requireMediaType((mimeType as string | undefined) ?? '', `${path}.file`);
    }
    default:
      throw malformed(`${path}.kind`, 'must be "text", "file" or "data".');
  }
}

function checkLegacyPush(params: unknown): void {
  if (!isRecord(params)) throw malformed('params', 'must be an object.');
  requireText(params['taskId'], 'taskId', 512);
  checkLegacyConfig(params['pushNotificationConfig'], 'pushNotificationConfig');
}

function checkLegacyConfig(config: unknown, path: string): void {
  if (!isRecord(config)) throw malformed(path, 'is required.');
  const { authentication, ...rest } = config;
  checkPushConfig(rest, `${path}.`);
  if (authentication === undefined || authentication === null) return;
  const schemes = isRecord(authentication) ? authentication['schemes'] : undefined;
  const isList = Array.isArray(schemes) && schemes.every((one) => typeof one === 'string');
  if (!isRecord(authentication) || !isList)
    throw malformed(`${path}.authentication.schemes`, 'must be a list of texts.');
  const [scheme] = schemes as string[];
  if (scheme === undefined) return;
  checkPushConfig(
    { ...rest, authentication: { scheme, credentials: authentication['credentials'] } },
    `${path}.`,
  );
}

function requireText(value: unknown, path: string, max: number, min = 1): void {
  if (typeof value !== 'string' || value.length < min || value.length > max)
    throw malformed(path, `must be a text of ${min} to ${max} characters.`);
}
