import type { IncomingMessage } from 'node:http';
import { EgressRefused, type EgressTarget } from '../domain/egress-policy.ts';
import { readTarget } from '../domain/egress-rules.ts';
import { headerPairs, hopByHop, listedIn } from '../domain/hop-by-hop.ts';
import { limits } from '../domain/limits.ts';
import type { RequestHead } from './interceptor.ts';

/** How the body of a request is framed; the proxy frames it anew. */
export type BodyFrame = { kind: 'none' } | { kind: 'length'; bytes: number } | { kind: 'chunked' };

export interface PlainRequest {
  target: EgressTarget;
  head: RequestHead;
  frame: BodyFrame;
  isWebSocket: boolean;
}

const bad = (message: string): EgressRefused => new EgressRefused('bad_request', message);

/**
 * Reads a request that Node's strict parser let through into the one meaning that is sent on. `tunnel` is the target of
 * the tunnel that it came in; else it must be in absolute form (RFC 9112, section 3.2.2). Throws EgressRefused.
 */
export function readPlainRequest(message: IncomingMessage, tunnel: EgressTarget | null): PlainRequest {
  checkVersion(message);
  const pairs = headerPairs(message.rawHeaders);
  const { target, path } = readPlainTarget(message.url ?? '', message.method ?? '', tunnel);
  checkHost(message, pairs, target);
  const frame = readFrame(message, pairs);
  const dropped = new Set([...hopByHop, ...listedIn(pairs, 'connection')]);
  // The target's own name, spelled in one way, takes the place of what the program wrote.
  const headers = pairs.filter(([name]) => name.toLowerCase() !== 'host' && !dropped.has(name.toLowerCase()));
  const isWebSocket =
    listedIn(pairs, 'connection').includes('upgrade') && listedIn(pairs, 'upgrade').join() === 'websocket';
  return { target, frame, isWebSocket, head: { method: message.method!, path, headers } };
}

/** Node's parser takes a head that names another version for one of 1.1. */
function checkVersion(message: IncomingMessage): void {
  if (message.httpVersion === '1.1' || message.httpVersion === '1.0') return;
  throw bad('This proxy speaks HTTP/1.1.');
}

function readPlainTarget(url: string, method: string, tunnel: EgressTarget | null) {
  if (tunnel) {
    const isOrigin = url.startsWith('/') || (url === '*' && method === 'OPTIONS');
    if (!isOrigin || !isClean(url)) throw bad('In a tunnel a request names a path only.');
    return { target: tunnel, path: url };
  }
  if (/^https:\/\//i.test(url)) throw bad('For https this proxy takes CONNECT.');
  const match = /^http:\/\/([^/?#]+)([/?].*)?$/i.exec(url);
  if (!match) throw bad('This is a proxy: a request names a whole http:// URL.');
  const target = readTarget(match[1]!, 80);
  const path = match[2] ?? '/';
  if (!target) throw bad('The URL names no host that could be read.');
  if (!isClean(path)) throw bad('The URL has characters that must be escaped.');
  return { target, path: path.startsWith('?') ? `/${path}` : path };
}

/** RFC 9112, section 3.2: one Host, and it is the target's. HTTP/1.0 may have none. */
function checkHost(message: IncomingMessage, pairs: [string, string][], target: EgressTarget): void {
  const hosts = pairs.filter(([name]) => name.toLowerCase() === 'host');
  if (hosts.length === 0 && message.httpVersion === '1.0') return;
  const named = hosts.length === 1 ? readTarget(hosts[0]![1].trim(), target.port === 443 ? 443 : 80) : null;
  if (named?.host === target.host && named.port === target.port) return;
  throw new EgressRefused(
    'name_mismatch',
    `The Host header is not ${target.host}, where the request goes to.`,
  );
}

/** RFC 9112, section 6.3: where two readers could see two lengths, there is none. */
function readFrame(message: IncomingMessage, pairs: [string, string][]): BodyFrame {
  if (pairs.length > limits.egressHeaders)
    throw bad(`A request has at most ${limits.egressHeaders} headers.`);
  const values = (wanted: string) =>
    pairs.filter(([name]) => name.toLowerCase() === wanted).map(([, v]) => v);
  const lengths = values('content-length');
  const codings = values('transfer-encoding');
  if (codings.length > 0) {
    const isPlain = codings.length === 1 && codings[0]!.toLowerCase() === 'chunked';
    if (!isPlain || lengths.length > 0 || message.httpVersion !== '1.1') {
      throw bad('The length of the body is not clear.');
    }
    return { kind: 'chunked' };
  }
  if (lengths.length === 0) return { kind: 'none' };
  if (lengths.length > 1 || !/^\d{1,15}$/.test(lengths[0]!))
    throw bad('The length of the body is not clear.');
  return { kind: 'length', bytes: Number(lengths[0]) };
}

/**
 * Reads the target of a CONNECT (RFC 9110, section 9.3.6). A Host header, where there is one, names the same; some
 * clients leave the port out of it. Throws EgressRefused.
 */
export function readConnectTarget(message: IncomingMessage): EgressTarget {
  checkVersion(message);
  const target = readTarget(message.url ?? '', null);
  if (!target) throw bad('CONNECT names a host and a port, such as registry.example:443.');
  const pairs = headerPairs(message.rawHeaders);
  const hosts = pairs.filter(([name]) => name.toLowerCase() === 'host');
  for (const [, value] of hosts) {
    const named = readTarget(value.trim(), target.port);
    if (hosts.length > 1 || named?.host !== target.host || named.port !== target.port) {
      throw new EgressRefused(
        'name_mismatch',
        `The Host header is not ${target.host}, where CONNECT goes to.`,
      );
    }
  }
  if (pairs.length > limits.egressHeaders)
    throw bad(`A request has at most ${limits.egressHeaders} headers.`);
  if (pairs.some(([name, value]) => /^(content-length|transfer-encoding)$/i.test(name) && value !== '0')) {
    throw bad('CONNECT has no body.');
  }
  return target;
}

function isClean(text: string): boolean {
  return /^[\x21-\x7e]+$/.test(text) && !text.includes('#');
}
