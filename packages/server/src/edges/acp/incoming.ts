import { type JsonShape, shapeOf, tooManyValues } from '../../domain/json-shape.ts';
import type { BodyHold } from '../../domain/flight.ts';
import { limits } from '../../domain/limits.ts';
import type { Sliced } from '../../domain/slices.ts';
import { answerId, rpcId, type RpcId } from '../http/json-rpc-id.ts';
import { badJsonValue, textOf } from '../http/text.ts';

/** The answer to a message that does not get as far as the agent. */
export interface Refusal {
  jsonrpc: '2.0';
  id: RpcId;
  error: { code: number; message: string };
}

export interface Incoming {
  /** As it was read. */
  message: object;
  /** Of a request; null for all else. */
  id: RpcId;
  kind: 'initialize' | 'request' | 'notification' | 'response';
}

/** JSON-RPC 2.0, section 5.1. */
const codes = { parse: -32700, request: -32600, params: -32602 } as const;

export function refusal(code: keyof typeof codes, message: string, id: RpcId = null): Refusal {
  return { jsonrpc: '2.0', id, error: { code: codes[code], message } };
}

export const isRefusal = (read: Incoming | Refusal): read is Refusal => 'error' in read;

/**
 * Looks at a message of a client before the SDK has it: what is refused here is answered with the id of its request, and
 * leaves the connection as it was. Above all an `initialize` that would fail: the SDK takes no second one. Its values count in `hold`;
 * throws what that throws.
 */
export function* readMessage(bytes: Buffer, hold: BodyHold): Sliced<Incoming | Refusal> {
  const text = yield* textOf(bytes);
  if (text === null) return refusal('parse', 'The body is not valid UTF-8.');
  return yield* readText(text, hold);
}

/** The same of a text. */
export function* readText(text: string, hold: BodyHold): Sliced<Incoming | Refusal> {
  const shape = yield* shapeOf(text);
  if (shape.hasTooMany) return refusal('request', tooManyValues('The message'));
  hold.addValues(shape.values);
  yield;
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch {
    return refusal('parse', 'This is no JSON.');
  }
  if (Array.isArray(message)) return refusal('request', 'Send one message; batches are not taken.');
  if (typeof message !== 'object' || message === null)
    return refusal('request', 'A message is a JSON object.');
  yield;
  return yield* readObject(message as Record<string, unknown>, text, shape);
}

function* readObject(
  message: Record<string, unknown>,
  text: string,
  { isTooDeep }: JsonShape,
): Sliced<Incoming | Refusal> {
  const { jsonrpc, method, params } = message;
  if ('id' in message && rpcId(message['id']) === undefined)
    return refusal('request', 'id: must be a string, a whole number or null.');
  const id = answerId(message);
  if (isLong(id)) return refusal('request', `id: must have at most ${limits.acpIdChars} characters.`);
  if (isTooDeep)
    return refusal('request', `The message is nested deeper than ${limits.jsonDepth} levels.`, id);
  if (jsonrpc !== '2.0') return refusal('request', 'jsonrpc: must be "2.0".', id);
  if (!('method' in message)) {
    if (!('result' in message) && !('error' in message))
      return refusal('request', 'method: must be a string.', id);
    return { message, id: null, kind: 'response' };
  }
  if (typeof method !== 'string') return refusal('request', 'method: must be a string.', id);
  const bad = yield* badJsonValue(text, message);
  if (bad !== null) return refusal('params', `${bad.path}: ${bad.message}.`, id);
  if (method === 'initialize') return checkInitialize(message, id, params);
  // The SDK would end the whole connection, with all that is asked on it.
  if (isLong(sessionIdOf(params)))
    return refusal('params', `sessionId: must have at most ${limits.acpIdChars} characters.`, id);
  return { message, id, kind: 'id' in message ? 'request' : 'notification' };
}

function sessionIdOf(params: unknown): unknown {
  return typeof params === 'object' && params !== null && 'sessionId' in params
    ? params.sessionId
    : undefined;
}

const isLong = (id: unknown): boolean => typeof id === 'string' && id.length > limits.acpIdChars;

/** What is wrong beside the version is read as not said: the protocol's schema has a default for it. */
function checkInitialize(message: object, id: RpcId, params: unknown): Incoming | Refusal {
  if (!('id' in message) || id === null) return refusal('request', 'initialize is a request: give it an id.');
  const version =
    typeof params === 'object' && params !== null && 'protocolVersion' in params
      ? params.protocolVersion
      : undefined;
  if (Number.isInteger(version) && (version as number) >= 0 && (version as number) <= 65_535)
    return { message, id, kind: 'initialize' };
  return refusal('params', 'protocolVersion: must be a whole number from 0 to 65535.', id);
}
