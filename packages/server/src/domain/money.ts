/** Micro-dollars (a bigint) as the decimal text that the API shows, e.g. 1250n -> "0.001250". */
export function formatMicros(micros: bigint): string {
  const sign = micros < 0n ? '-' : '';
  const abs = micros < 0n ? -micros : micros;
  return `${sign}${abs / 1_000_000n}.${(abs % 1_000_000n).toString().padStart(6, '0')}`;
}

/** At most a billion dollars less a micro-dollar, to the micro-dollar. */
export const dollarsPattern = /^(\d{1,9})(?:\.(\d{1,6}))?$/;

/** Dollars as a decimal text, such as "0.25", in micro-dollars; null when it is none. */
export function parseDollars(text: string): bigint | null {
  const match = dollarsPattern.exec(text);
  if (!match) return null;
  return BigInt(match[1] ?? '0') * 1_000_000n + BigInt((match[2] ?? '').padEnd(6, '0'));
}
