/** Distinguished Encoding Rules (ITU-T X.690), as much of them as a certificate needs. */

export function element(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body), body]);
}

function lengthOf(body: Buffer): Buffer {
  if (body.length < 0x80) return Buffer.from([body.length]);
  const bytes: number[] = [];
  for (let rest = body.length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return Buffer.from([0x80 | bytes.length, ...bytes]);
}

export const sequence = (...parts: Buffer[]): Buffer => element(0x30, ...parts);
export const set = (...parts: Buffer[]): Buffer => element(0x31, ...parts);
export const octets = (...parts: Buffer[]): Buffer => element(0x04, ...parts);
export const utf8 = (text: string): Buffer => element(0x0c, Buffer.from(text));
export const yes: Buffer = element(0x01, Buffer.from([0xff]));

/** A positive integer from its big-endian bytes; a first bit that is set would make it negative. */
export function integer(...bytes: number[]): Buffer {
  return element(0x02, Buffer.from((bytes[0] ?? 0) & 0x80 ? [0, ...bytes] : bytes));
}

/** Whole bytes, or with `unused` bits left out of the last one. */
export const bits = (bytes: Buffer, unused = 0): Buffer => element(0x03, Buffer.from([unused]), bytes);

/** `[number]` around whole elements. */
export const wrapped = (number: number, ...parts: Buffer[]): Buffer => element(0xa0 | number, ...parts);

/** `[number]` in place of the tag of a plain text or byte string. */
export const retagged = (number: number, body: Buffer): Buffer => element(0x80 | number, body);

export function objectId(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const groups = [arc & 0x7f];
    for (let left = arc >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return element(0x06, Buffer.from(bytes));
}

/** UTCTime to the end of 2049, GeneralizedTime from then on (RFC 5280, section 4.1.2.5). */
export function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/[-:T]/g, '').slice(0, 14);
  return date.getUTCFullYear() < 2050
    ? element(0x17, Buffer.from(`${digits.slice(2)}Z`))
    : element(0x18, Buffer.from(`${digits}Z`));
}
