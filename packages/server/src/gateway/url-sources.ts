import { compileEgressPolicy, EgressRefused, egressRemedy } from '../domain/egress-policy.ts';
import { readTarget } from '../domain/egress-rules.ts';
import type { EgressTarget } from '../domain/egress-rules.ts';
import type { ModelCaller } from '../domain/ports/model-gateway.ts';
import type { ReadEgressPolicy } from '../domain/ports/egress.ts';
import { bySize } from '../domain/slices.ts';
import type { BodySender, Sliced } from '../domain/slices.ts';
import { sliceBytes } from './slices.ts';
import { WireError } from './wires.ts';
import type { Wire } from './wires.ts';

/** Hosts that the sources of one request may name: each is compared with all rules of the policy. */
export const maxSourceHosts = 100;

const quote = 0x22;
const backslash = 0x5c;
const colon = 0x3a;
const comma = 0x2c;

/** Ends of the names that hold sources, and letters that are escaped, as those of a name may be. */
const marker = /(?:url|uri|file_?data)"|\\u00[4-7]/i;

interface Place {
  /** Whether a source at this name, in the object that lies at the name `holder`, is fetched. */
  isSource: (name: string, holder: string) => boolean;
  /** Below these are arguments, schemas and results of tools, which nobody fetches. */
  notBelow: ReadonlySet<string>;
}

const openai: Place = {
  isSource: (name, holder) =>
    /.url$/.test(name) || (name === 'url' && /.url$/.test(holder)) || /^file_?data$/.test(name),
  notBelow: new Set(['tools', 'metadata']),
};

const places: Record<Wire, Place> = {
  anthropic: {
    isSource: (name, holder) => name === 'url' && holder === 'source',
    notBelow: new Set(['tools', 'input']),
  },
  'openai-chat': openai,
  'openai-responses': openai,
  gemini: {
    isSource: (name) => /^file_?uri$/.test(name),
    notBelow: new Set(['tools', 'args', 'response']),
  },
};

/**
 * A provider fetches the images and documents that a request names by URL, and a URL carries data: past the sandbox's
 * rules, unless they are asked here. `body` has been checked to be JSON. Throws WireError.
 */
export async function refuseUrlSources(
  readPolicy: ReadEgressPolicy,
  caller: ModelCaller,
  sender: BodySender,
  wire: Wire,
  body: Buffer,
): Promise<void> {
  const urls = await bySize(sender, body.length, urlSources(wire, body));
  if (urls.length === 0) return;
  const policy = await readPolicy(caller.agentId);
  if (policy.mode === 'open' && policy.deny.length === 0) return;
  const { check } = compileEgressPolicy(policy);
  await bySize(sender, body.length, checkAll(urls, caller.agentId, check));
}

/** Compared with the rules in one go. */
const urlsInOneGo = 256;

function* checkAll(urls: string[], agentId: string, check: (target: EgressTarget) => unknown): Sliced<void> {
  const seen = new Set<string>();
  for (const [index, url] of urls.entries()) {
    if (index > 0 && index % urlsInOneGo === 0) yield;
    const target = targetOf(url);
    if (target === null) {
      throw refused(
        'has no address that could be compared with the rules; write it as https://<host>/…',
        null,
      );
    }
    const name = `${target.host}:${target.port}`;
    if (seen.has(name)) continue;
    seen.add(name);
    if (seen.size > maxSourceHosts) throw refused(`is one of more than ${maxSourceHosts} hosts`, null);
    try {
      check(target);
    } catch (error) {
      if (!(error instanceof EgressRefused)) throw error;
      const remedy = egressRemedy(agentId, error.reason, target);
      throw refused(`would be fetched past the agent's network rules: ${error.message}`, remedy);
    }
  }
}

function refused(why: string, remedy: string | null): WireError {
  const allow = remedy === null ? '' : ` Its owner may allow it (${remedy}).`;
  return new WireError(
    'bad_request',
    `A source of this request that is named by URL ${why.replace(/\.?$/, '.')}${allow} Or send the bytes themselves instead.`,
  );
}

/** Null for what two readers could take for two hosts. */
function targetOf(url: string): EgressTarget | null {
  const match = /^(https?):\/\/([^/?#]*)/i.exec(url);
  return match && readTarget(match[2]!, match[1]!.toLowerCase() === 'https' ? 443 : 80);
}

interface Open {
  isObject: boolean;
  /** The name at which it lies, or the array does that it lies in. */
  holder: string;
  /** The name that was read last; in an array, its own. */
  name: string;
  isPassedBy: boolean;
}

/**
 * The URLs that the provider would fetch, as they are written. It goes through all fields, also those that are there
 * twice, since parsers differ in which one they take.
 */
export function* urlSources(wire: Wire, body: Buffer): Sliced<string[]> {
  const { isSource, notBelow } = places[wire];
  const urls: string[] = [];
  if (!(yield* hasMarker(body))) return urls;
  let sliceEnd = sliceBytes;
  const open: Open[] = [];
  let isName = false;
  for (let at = 0; at < body.length; at += 1) {
    if (at >= sliceEnd) {
      yield;
      sliceEnd = at + sliceBytes;
    }
    const inner = open[open.length - 1];
    switch (body[at]) {
      case 0x7b:
      case 0x5b: {
        const holder = inner?.name ?? '';
        const isPassedBy = inner !== undefined && (inner.isPassedBy || notBelow.has(holder));
        isName = body[at] === 0x7b;
        open.push({ isObject: isName, holder, name: isName ? '' : holder, isPassedBy });
        break;
      }
      case 0x7d:
      case 0x5d:
        open.pop();
        break;
      case colon:
        isName = false;
        break;
      case comma:
        isName = inner?.isObject ?? false;
        break;
      case quote: {
        const start = at;
        at = lastOfText(body, start);
        if (inner === undefined || inner.isPassedBy) break;
        if (isName) inner.name = folded(textOf(body, start, at));
        else if (isSource(inner.name, inner.holder)) {
          const url = urlOf(body, start, at);
          if (url !== null) urls.push(url);
        }
      }
    }
  }
  return urls;
}

/** No less than the longest marker, which may lie across the end of a slice. */
const overlapBytes = 16;

function* hasMarker(body: Buffer): Sliced<boolean> {
  for (let from = 0; from < body.length; from += sliceBytes) {
    if (from > 0) yield;
    if (marker.test(body.toString('latin1', from, from + sliceBytes + overlapBytes))) return true;
  }
  return false;
}

/** From the opening quote to the closing one. */
function lastOfText(body: Buffer, start: number): number {
  let at = start + 1;
  while (at < body.length && body[at] !== quote) at += body[at] === backslash ? 2 : 1;
  return at;
}

function textOf(body: Buffer, start: number, end: number): string {
  const text = body.toString('utf8', start + 1, end);
  if (!text.includes('\\')) return text;
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    throw new WireError('bad_request', `The body is not valid JSON: a text cannot be read (byte ${start}).`);
  }
}

/** Some parsers take names of another case as well. */
function folded(name: string): string {
  const lower = name.toLowerCase();
  return /[\u017f\u212a]/.test(lower) ? lower.replaceAll('\u017f', 's').replaceAll('\u212a', 'k') : lower;
}

/** Null for the bytes themselves, as a data URL or base64, and for ids. */
function urlOf(body: Buffer, start: number, end: number): string | null {
  if (/^data:/i.test(body.toString('latin1', start + 1, start + 6))) return null;
  const text = textOf(body, start, end);
  // Readers of URLs step over spaces in front, and over tabs and ends of lines anywhere.
  // oxlint-disable-next-line no-control-regex
  return /^[\u0000-\u0020]*[a-z][a-z0-9+.\t\r\n-]*:/i.test(text) ? text : null;
}
