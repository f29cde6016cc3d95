import type { IncomingMessage } from 'node:http';
import { Transform, type TransformCallback } from 'node:stream';
import { createBrotliDecompress, createUnzip, createZstdDecompress } from 'node:zlib';
import { EgressRefused } from '../../domain/egress-policy.ts';
import { headerPairs } from '../../domain/hop-by-hop.ts';
import { scrubText, ScrubStream, type Search } from './scrub.ts';

/** An answer as it goes into the sandbox. */
export interface CleanAnswer {
  status: number;
  statusText: string;
  headers: [name: string, value: string][];
  /** What the body passes through, in order; none when there is no body. */
  filters: Transform[];
}

/** Alt-Svc offers ways to the host that lead past the proxy, of which there are none. */
const ofThisHop = /^(connection|keep-alive|proxy-.*|transfer-encoding|upgrade|trailer|alt-svc)$/i;
/** True of the body as the host sent it, and no longer once something in it was replaced. */
const ofTheBytes = /^(content-length|content-encoding|content-md5|digest|content-digest|repr-digest)$/i;

/** Takes the values out of an answer. Throws EgressRefused when it is packed in a way that cannot be looked into. */
export function cleanAnswer(method: string, incoming: IncomingMessage, search: Search): CleanAnswer {
  const { scrubs } = search;
  const status = incoming.statusCode ?? 502;
  const pairs = headerPairs(incoming.rawHeaders).filter(([name]) => !ofThisHop.test(name));
  const statusText = incoming.statusMessage ?? '';
  const hasBody = method !== 'HEAD' && status !== 204 && status !== 304;
  return {
    status,
    statusText: scrubText(scrubs, statusText),
    headers: pairs
      .filter(([name]) => !hasBody || !ofTheBytes.test(name))
      .map(([name, value]) => [name, scrubText(scrubs, value)]),
    filters: hasBody ? [...unpackers(incoming), new ScrubStream(search)] : [],
  };
}

/** `identity` was asked for; a host that packs all the same is unpacked, the last coding first (RFC 9110, section 8.4). */
function unpackers(incoming: IncomingMessage): Transform[] {
  // Nobody asked for packing between two hops, and no host of today does it (RFC 9112, section 7).
  const ofTransfer = codingsOf(incoming.headers['transfer-encoding']);
  if (ofTransfer.some((coding) => coding !== 'chunked')) throw unreadable(ofTransfer);
  const codings = codingsOf(incoming.headers['content-encoding']);
  // An empty body is none of a packed one.
  if (incoming.headers['content-length'] === '0') return [];
  if (codings.length > 2) throw unreadable(codings);
  return codings.reverse().flatMap((coding) => {
    const unpacker = unpackerOf(coding);
    if (!unpacker) throw unreadable(codings);
    return [unpacker, new UnpackGuard(unpacker)];
  });
}

function codingsOf(header: string | undefined): string[] {
  const codings = (header ?? '').split(',').map((coding) => coding.trim().toLowerCase());
  return codings.filter((coding) => coding !== '' && coding !== 'identity');
}

type Unpacker = Transform & { readonly bytesWritten: number };

function unpackerOf(coding: string): Unpacker | null {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
    case 'deflate':
      return createUnzip();
    case 'br':
      return createBrotliDecompress();
    case 'zstd':
      return createZstdDecompress();
    default:
      return null;
  }
}

const UNPACKED_BYTES = 1024 * 1024;
const UNPACKED_TIMES = 100;

/** Ends an answer that is small outside and endless inside: unpacking is work for all sandboxes of the service. */
class UnpackGuard extends Transform {
  readonly #unpacker: Unpacker;
  #bytes = 0;

  constructor(unpacker: Unpacker) {
    super();
    this.#unpacker = unpacker;
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#bytes += chunk.length;
    const most = UNPACKED_BYTES + UNPACKED_TIMES * this.#unpacker.bytesWritten;
    if (this.#bytes > most) return done(new Error('The answer unpacks to too much.'));
    done(null, chunk);
  }
}

function unreadable(codings: string[]): EgressRefused {
  return new EgressRefused(
    'connect_failed',
    `The answer is packed (${codings.slice(0, 4).join(', ').slice(0, 100)}), and could not be searched for the secret.`,
  );
}
