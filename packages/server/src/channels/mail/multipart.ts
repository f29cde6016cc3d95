import { DomainError, invalid } from '../../domain/errors.ts';
import type { InboundRequest } from '../../domain/ports/channel.ts';
import { mediaType } from '../body.ts';

export interface FormPart {
  name: string;
  fileName: string | null;
  mediaType: string;
  /** As they came: each field may be in a charset of its own. */
  bytes: Buffer;
}

const maxParts = 200;
const maxHeadBytes = 8_192;

/** The parts of a multipart/form-data body (RFC 7578). Work grows with the length alone; bytes are not copied. */
export function readMultipart(request: InboundRequest): FormPart[] {
  const { type, boundary } = mediaType(request);
  if (type !== 'multipart/form-data' || !boundary || boundary.length > 200) {
    throw new DomainError('unsupported_media_type', 'The body must be multipart/form-data with a boundary.');
  }
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  // So that the first boundary is found like all others.
  const body = Buffer.concat([Buffer.from('\r\n'), request.body]);
  const parts: FormPart[] = [];
  let start = body.indexOf(delimiter);
  while (start !== -1) {
    const head = start + delimiter.length;
    if (body.toString('latin1', head, head + 2) === '--') return parts;
    const end = body.indexOf(delimiter, head);
    if (end === -1) break;
    if (parts.length >= maxParts) throw invalid('body', `must have at most ${maxParts} parts.`);
    parts.push(readPart(body.subarray(head, end)));
    start = end;
  }
  throw invalid('body', 'is not a complete multipart/form-data body.');
}

function readPart(part: Buffer): FormPart {
  const split = part.subarray(0, maxHeadBytes).indexOf('\r\n\r\n');
  if (split === -1) throw invalid('body', 'has a part without a head.');
  const head = part.toString('utf8', 0, split).replace(/\r\n[ \t]+/g, ' ');
  const line = (name: string) =>
    head
      .split('\r\n')
      .find((text) => text.toLowerCase().startsWith(`${name}:`))
      ?.slice(name.length + 1) ?? '';
  const disposition = line('content-disposition');
  const parameter = (name: string) =>
    new RegExp(`;\\s*${name}="([^"]*)"`, 'i').exec(disposition)?.[1] ?? null;
  return {
    name: parameter('name') ?? '',
    fileName: parameter('filename'),
    mediaType: line('content-type').trim() || 'text/plain',
    bytes: part.subarray(split + 4),
  };
}
