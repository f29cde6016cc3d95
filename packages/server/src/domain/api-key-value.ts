import { hash, randomBytes } from 'node:crypto';

const HEAD = 'svc_live_';
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const RANDOM_CHARS = 43;
const CHECK_CHARS = 6;
const SHAPE = /^svc_live_[0-9A-Za-z]{49}$/;
const CHECK_START = HEAD.length + RANDOM_CHARS;

/** What is kept of a key value: its SHA-256 (base64url) and the first 15 characters for display. */
export interface KeyValueParts {
  hash: string;
  prefix: string;
}

export interface NewKeyValue extends KeyValueParts {
  /** Shown once, stored nowhere. */
  value: string;
}

/** A new key value: `svc_live_`, 256 random bits as 43 base62 digits, CRC-32 of all that as 6 (API contract, section 2). */
export function newKeyValue(): NewKeyValue {
  const body = HEAD + base62(BigInt(`0x${randomBytes(32).toString('hex')}`), RANDOM_CHARS);
  const value = body + checkDigits(body);
  return { value, ...partsOf(value) };
}

/** Null for what cannot be a key: a wrong shape, or a checksum that does not fit (a mistyped key). No look-up is needed. */
export function parseKeyValue(value: string): KeyValueParts | null {
  if (!SHAPE.test(value)) return null;
  if (checkDigits(value.slice(0, CHECK_START)) !== value.slice(CHECK_START)) return null;
  return partsOf(value);
}

/** Whether something that looks like a key stands anywhere in a text. */
export function holdsKeyValue(text: string): boolean {
  return /svc_live_[0-9A-Za-z]{20}/.test(text);
}

function partsOf(value: string): KeyValueParts {
  // A fast hash is right here: slow ones defend guessable passwords, and these are 256 random bits.
  return { hash: hash('sha256', value, 'base64url'), prefix: value.slice(0, 15) };
}

function base62(number: bigint, width: number): string {
  let text = '';
  for (let rest = number; rest > 0n; rest /= 62n) text = DIGITS[Number(rest % 62n)] + text;
  return text.padStart(width, '0');
}

function checkDigits(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < CHECK_CHARS; i += 1) {
    digits = DIGITS[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

/** CRC-32 of an ASCII text, the common reflected one (ISO-HDLC, as in zlib). */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i += 1) crc = CRC_TABLE[(crc ^ text.charCodeAt(i)) & 0xff]! ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
