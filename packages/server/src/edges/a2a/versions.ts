import { VersionNotSupportedError } from './errors.ts';

export type Version = '1.0' | '0.3';

/**
 * The protocol version of a request: the header `A2A-Version`, else the query parameter of that name; none or an empty
 * one means 0.3 (A2A 1.0, section 3.6). A patch number takes no part. Throws VersionNotSupportedError.
 */
export function versionOf(header: string | undefined, query: string): Version {
  const asked = header?.trim() || new URLSearchParams(query).get('A2A-Version')?.trim() || '0.3';
  const match = /^(\d{1,9})\.(\d{1,9})(\.\d{1,9})?$/.exec(asked);
  const version = match ? `${Number(match[1])}.${Number(match[2])}` : asked;
  if (version === '1.0' || version === '0.3') return version;
  throw new VersionNotSupportedError(
    `A2A-Version ${JSON.stringify(asked.slice(0, 40))} is not supported; send 1.0 or 0.3.`,
  );
}
