import { RequestMalformedError } from './errors.ts';
import { requireMediaType } from './parts.ts';

type Fields = Record<string, unknown>;

export const contextIdChars = 255;
const messageIdChars = 255;
const idChars = 512;
const maxParts = 100;
const maxUrlChars = 2_048;
const maxSecretChars = 4_096;
const tenantChars = 1_024;
/** RFC 9110, section 5.6.2. */
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
/** What a header field may hold (RFC 9110, section 5.5), without controls. */
const fieldValue = /^[\x20-\x7e]*$/;

export function malformed(path: string, message: string): RequestMalformedError {
  return new RequestMalformedError({ message: `${path} ${message}`, metadata: { field: path } });
}

export function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** ProtoJSON takes the name of the schema as well (proto3 JSON mapping). */
function field(fields: Fields, name: string): unknown {
  const value = fields[name] ?? fields[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)];
  return value === null ? undefined : value;
}

export function checkText(
  fields: Fields,
  name: string,
  path: string,
  bounds: { min?: number; max: number },
): string | undefined {
  const value = field(fields, name);
  if (value === undefined) {
    if (bounds.min) throw malformed(path, 'is required.');
    return undefined;
  }
  if (typeof value !== 'string') throw malformed(path, 'must be a text.');
  if (value.length < (bounds.min ?? 0) || value.length > bounds.max)
    throw malformed(path, `must have ${bounds.min ?? 0} to ${bounds.max} characters.`);
  return value;
}

function whole(fields: Fields, name: string, path: string, min: number, max: number): void {
  const value = field(fields, name);
  if (value === undefined) return;
  // A query has nothing but texts.
  const number = typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isInteger(number) || number < min || number > max)
    throw malformed(path, `must be a whole number from ${min} to ${max}.`);
}

function checkFlag(fields: Fields, name: string, path: string): void {
  const value = field(fields, name);
  if (value === undefined || typeof value === 'boolean' || value === 'true' || value === 'false') return;
  throw malformed(path, 'must be true or false.');
}

export function checkObject(fields: Fields, name: string, path: string): Fields | undefined {
  const value = field(fields, name);
  if (value === undefined) return undefined;
  if (!isRecord(value)) throw malformed(path, 'must be an object.');
  return value;
}

export function checkTexts(fields: Fields, name: string, path: string): void {
  const value = field(fields, name);
  if (value === undefined) return;
  if (!Array.isArray(value) || value.some((one) => typeof one !== 'string'))
    throw malformed(path, 'must be a list of texts.');
}

const maxInt = 2_147_483_647;

/** What every request of A2A 1.0 may have; ours means nothing here, as no card gives one. */
function checkParams(params: unknown): asserts params is Fields {
  if (!isRecord(params)) throw malformed('params', 'must be an object.');
  checkText(params, 'tenant', 'tenant', { max: tenantChars });
}

/** Whatever is wrong with a send is told before anything is done. */
export function checkSend(params: unknown): void {
  checkParams(params);
  const message = checkObject(params, 'message', 'message');
  if (!message) throw malformed('message', 'is required.');
  checkText(message, 'messageId', 'message.messageId', { min: 1, max: messageIdChars });
  checkText(message, 'contextId', 'message.contextId', { max: contextIdChars });
  checkText(message, 'taskId', 'message.taskId', { max: idChars });
  const role = field(message, 'role');
  if (role === undefined) throw malformed('message.role', 'is required.');
  if (role !== 'ROLE_USER' && role !== 1) throw malformed('message.role', 'must be ROLE_USER.');
  const parts = field(message, 'parts');
  if (!Array.isArray(parts) || parts.length === 0)
    throw malformed('message.parts', 'must have at least one part.');
  if (parts.length > maxParts) throw malformed('message.parts', `must have at most ${maxParts} parts.`);
  parts.forEach((part: unknown, index) => checkPart(part, `message.parts[${index}]`));
  checkObject(message, 'metadata', 'message.metadata');
  checkTexts(message, 'extensions', 'message.extensions');
  checkTexts(message, 'referenceTaskIds', 'message.referenceTaskIds');
  checkObject(params, 'metadata', 'metadata');
  const configuration = checkObject(params, 'configuration', 'configuration');
  if (configuration) checkConfiguration(configuration);
}

function checkConfiguration(configuration: Fields): void {
  whole(configuration, 'historyLength', 'configuration.historyLength', 0, maxInt);
  checkFlag(configuration, 'returnImmediately', 'configuration.returnImmediately');
  checkTexts(configuration, 'acceptedOutputModes', 'configuration.acceptedOutputModes');
  const path = 'configuration.taskPushNotificationConfig';
  const push = checkObject(configuration, 'taskPushNotificationConfig', path);
  if (push) checkPushConfig(push, `${path}.`);
}

function checkPart(part: unknown, path: string): void {
  if (!isRecord(part)) throw malformed(path, 'must be an object.');
  const given = ['text', 'raw', 'url', 'data'].filter((name) => part[name] !== undefined);
  if (given.length !== 1)
    throw malformed(
      path,
      'must have exactly one of text, raw, url and data; it has ' + (given.join(', ') || 'none') + '.',
    );
  const name = given[0]!;
  const value = part[name];
  if (name !== 'data' && typeof value !== 'string') throw malformed(`${path}.${name}`, 'must be a text.');
  // The SDK takes it for nothing, so that it would be lost.
  if (value === null) throw malformed(`${path}.${name}`, 'must not be null.');
  if (name === 'raw') requireBase64(value as string, `${path}.raw`);
  if (name === 'url' && !URL.canParse(value as string))
    throw malformed(`${path}.url`, 'must be an absolute URL.');
  checkText(part, 'filename', `${path}.filename`, { max: 255 });
  const mediaType = checkText(part, 'mediaType', `${path}.mediaType`, { max: 255 });
  checkObject(part, 'metadata', `${path}.metadata`);
  requireMediaType(mediaType ?? '', path);
}

/** Of either alphabet, with or without padding (proto3 JSON mapping). What is more would be left out of it unsaid. */
export function requireBase64(value: string, path: string): void {
  const digits = value.replace(/={1,2}$/, '');
  if (/[^A-Za-z0-9+/_-]/.test(digits) || digits.length % 4 === 1) throw malformed(path, 'must be base64.');
}

export function checkTaskId(params: unknown): void {
  checkParams(params);
  checkText(params, 'id', 'id', { min: 1, max: idChars });
}

export function checkGetTask(params: unknown): void {
  checkTaskId(params);
  whole(params as Fields, 'historyLength', 'historyLength', 0, maxInt);
}

const states = new Set(
  [
    'UNSPECIFIED',
    'SUBMITTED',
    'WORKING',
    'COMPLETED',
    'FAILED',
    'CANCELED',
    'INPUT_REQUIRED',
    'REJECTED',
    'AUTH_REQUIRED',
  ].map((name) => `TASK_STATE_${name}`),
);

export function checkListTasks(params: unknown): void {
  checkParams(params);
  checkText(params, 'contextId', 'contextId', { max: contextIdChars });
  checkText(params, 'pageToken', 'pageToken', { max: 1_024 });
  whole(params, 'pageSize', 'pageSize', 1, 100);
  whole(params, 'historyLength', 'historyLength', 0, maxInt);
  checkFlag(params, 'includeArtifacts', 'includeArtifacts');
  const status = field(params, 'status');
  const isState = typeof status === 'string' ? states.has(status) : Number.isInteger(status);
  if (status !== undefined && status !== '' && !isState)
    throw malformed('status', 'must be a task state, such as TASK_STATE_WORKING.');
  const after = checkText(params, 'statusTimestampAfter', 'statusTimestampAfter', { max: 40 });
  if (after !== undefined && after !== '' && !isTimestamp(after))
    throw malformed('statusTimestampAfter', 'must be a time such as 2026-01-31T12:00:00.000Z.');
}

function isTimestamp(value: string): boolean {
  return (
    /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(value) &&
    !Number.isNaN(Date.parse(value))
  );
}

export function checkPushConfig(config: unknown, prefix = ''): void {
  if (!isRecord(config)) throw malformed('params', 'must be an object.');
  checkText(config, 'tenant', `${prefix}tenant`, { max: tenantChars });
  checkText(config, 'url', `${prefix}url`, { min: 1, max: maxUrlChars });
  checkText(config, 'id', `${prefix}id`, { max: 255 });
  checkText(config, 'taskId', `${prefix}taskId`, { max: idChars });
  const given = checkText(config, 'token', `${prefix}token`, { max: maxSecretChars });
  if (given !== undefined && !fieldValue.test(given))
    throw malformed(`${prefix}token`, 'must be printable ASCII, since it is sent in a header.');
  const authentication = checkObject(config, 'authentication', `${prefix}authentication`);
  if (!authentication) return;
  const path = `${prefix}authentication`;
  const scheme = checkText(authentication, 'scheme', `${path}.scheme`, { min: 1, max: 100 })!;
  if (!token.test(scheme))
    throw malformed(`${path}.scheme`, 'must be the name of an HTTP authentication scheme, such as Bearer.');
  const credentials = checkText(authentication, 'credentials', `${path}.credentials`, {
    max: maxSecretChars,
  });
  if (credentials !== undefined && !fieldValue.test(credentials))
    throw malformed(`${path}.credentials`, 'must be printable ASCII, since they are sent in a header.');
}

export function checkTaskScoped(params: unknown, withId: boolean): void {
  checkParams(params);
  checkText(params, 'taskId', 'taskId', { min: 1, max: idChars });
  if (withId) checkText(params, 'id', 'id', { min: 1, max: 255 });
  whole(params, 'pageSize', 'pageSize', 0, 100);
  checkText(params, 'pageToken', 'pageToken', { max: 1_024 });
}
