import type { IncomingMessage } from 'node:http';
import { holdsKey } from '../../domain/holds-key.ts';
import { invalid } from '../../domain/errors.ts';
import { headerPairs, hopByHop, listedIn, type Fields } from '../../domain/hop-by-hop.ts';

/** Of a request also its host, which is said anew. */
const ofThisHop = new Set([...hopByHop, 'host']);

/** What only the service may tell the server about a request. */
const ofTheService = new Set([
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-real-ip',
  'x-request-id',
]);

const keyProtocol = /^berth\.key\./;

export interface Told {
  /** The agent's public address. */
  origin: string;
  clientAddress: string;
  requestId: string;
  /** The request came with a key of the service, and `Authorization` or `X-API-Key` is it. */
  isKeyed: boolean;
}

/** The fields of a request for the agent's server: no key of the service is among them, wherever it stood. */
export function requestFields(request: IncomingMessage, told: Told): Fields {
  const given = headerPairs(request.rawHeaders);
  const dropped = new Set(listedIn(given, 'connection'));
  const { host, protocol } = new URL(told.origin);
  const fields: Fields = [['Host', request.headers.host ?? host]];
  for (const [name, value] of given) {
    const lower = name.toLowerCase();
    if (ofThisHop.has(lower) || ofTheService.has(lower) || dropped.has(lower)) continue;
    if (told.isKeyed && lower === 'authorization') continue;
    if (lower === 'sec-websocket-protocol') {
      const kept = value.split(',').filter((one) => !keyProtocol.test(one.trim()));
      if (kept.length > 0) fields.push([name, kept.join(',').trim()]);
    } else if (!holdsKey(value)) fields.push([name, value]);
  }
  fields.push(
    ['X-Forwarded-For', told.clientAddress],
    ['X-Forwarded-Host', host],
    ['X-Forwarded-Proto', protocol.slice(0, -1)],
    ['X-Request-Id', told.requestId],
  );
  return fields;
}

/** How the body is framed, anew. Where two readers could see two lengths there is none (RFC 9112, section 6.3). */
export function framing(request: IncomingMessage): Fields {
  const given = headerPairs(request.rawHeaders);
  const codings = given.filter(([name]) => name.toLowerCase() === 'transfer-encoding');
  const lengths = given.filter(([name]) => name.toLowerCase() === 'content-length');
  if (codings.length > 0) {
    if (codings.length > 1 || codings[0]![1].toLowerCase() !== 'chunked' || lengths.length > 0)
      throw invalid('transfer-encoding', 'must be chunked, and nothing else');
    return [['Transfer-Encoding', 'chunked']];
  }
  if (lengths.length === 0) return [];
  if (lengths.length > 1 || !/^\d{1,15}$/.test(lengths[0]![1]))
    throw invalid('content-length', 'must be one number');
  return [['Content-Length', lengths[0]![1]]];
}

const ofAnswersHop = new Set([...hopByHop].filter((name) => name !== 'content-length'));

/** The fields of the server's answer for the client. `own` wins, and is what the service itself has to say. */
export function answerFields(answer: IncomingMessage, own: Record<string, string>, isKeyed: boolean): Fields {
  const given = headerPairs(answer.rawHeaders);
  const dropped = new Set(listedIn(given, 'connection'));
  const fields: Fields = [];
  for (const [name, value] of given) {
    const lower = name.toLowerCase();
    if (ofAnswersHop.has(lower) || dropped.has(lower) || lower === 'x-request-id') continue;
    // It would lead browsers to another server, in the name of this address.
    if (lower === 'alt-svc') continue;
    // Which pages may use a key of theirs here is said to the service, not to the server.
    if (isKeyed && lower.startsWith('access-control-')) continue;
    // A cookie for the whole domain would be sent to all other agents, and be theirs to be read.
    fields.push([name, lower === 'set-cookie' ? value.replaceAll(/;\s*domain\s*=[^;]*/gi, '') : value]);
  }
  return [...fields, ...Object.entries(own)];
}

/** Of the fields that the service has made for its own answers: those that also belong to another's. */
export function ownFields(head: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(head).filter(([name]) =>
      /^(connection|x-request-id|ratelimit|vary|access-control-)/i.test(name),
    ),
  );
}
