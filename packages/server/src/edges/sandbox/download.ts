import type { VolumeEntry } from '../../domain/ports/volume.ts';

export type Range = { start: number; end: number } | 'whole' | 'unsatisfiable';

/**
 * One range of bytes (RFC 9110, section 14.2). What is no range, or several, is answered with the whole, as the RFC
 * allows. `end` is exclusive.
 */
export function readRange(header: string | undefined, sizeBytes: number): Range {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(header?.trim() ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return 'whole';
  if (match[1] === '') {
    const last = Number(match[2]);
    if (last === 0 || sizeBytes === 0) return 'unsatisfiable';
    return { start: Math.max(0, sizeBytes - last), end: sizeBytes };
  }
  const start = Number(match[1]);
  const end = match[2] === '' ? sizeBytes : Math.min(Number(match[2]) + 1, sizeBytes);
  if (match[2] !== '' && Number(match[2]) < start) return 'whole';
  return start >= sizeBytes ? 'unsatisfiable' : { start, end };
}

/** Whether one of the tags of `If-None-Match` is this one; weak comparison (RFC 9110, section 13.1.2). */
export function matchesTag(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === '*') return true;
  return header.split(',').some((one) => one.trim().replace(/^W\//, '') === tag);
}

/** Whether a range may be taken of what there is now (RFC 9110, section 13.1.5). */
export function rangeApplies(ifRange: string | undefined, tag: string, modifiedAt: Date): boolean {
  if (ifRange === undefined) return true;
  const text = ifRange.trim();
  return text === tag || text === modifiedAt.toUTCString();
}

export function fileHeaders(entry: VolumeEntry): Record<string, string> {
  return {
    'Content-Type': 'application/octet-stream',
    ETag: `"${entry.version}"`,
    'Last-Modified': entry.modifiedAt.toUTCString(),
    'Accept-Ranges': 'bytes',
    ...attachment(entry.name),
  };
}

/**
 * A file of an agent comes from the same origin as the console: no browser may show it as a page. The name is any bytes
 * that a program chose (RFC 6266, section 4.3; RFC 8187).
 */
export function attachment(name: Buffer): Record<string, string> {
  const text = name.toString('utf8');
  const plain = text.replace(/[^A-Za-z0-9._ -]/g, '_').slice(0, 200);
  const isText = Buffer.from(text).equals(name);
  const extended = isText
    ? `; filename*=UTF-8''${encodeURIComponent(text).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)}`
    : '';
  return {
    'Content-Disposition': `attachment; filename="${plain}"${extended}`,
    'Content-Security-Policy': "default-src 'none'; sandbox",
  };
}
