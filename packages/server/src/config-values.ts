import { accessSync, constants, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { dirname, resolve } from 'node:path';
import type { EgressPolicy } from './domain/egress-policy.ts';
import { egressPresets } from './domain/egress-presets.ts';

/** A bad variable: the message begins with its name and says what it may be. */
export class ConfigError extends Error {}

export function number(
  name: string,
  text: string,
  fallback: number,
  min: number,
  max: number,
  whole = true,
): number {
  if (text === '') return fallback;
  // Number() alone would also take 0x1f and 1e3.
  const value = /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isFinite(value) || (whole && !Number.isInteger(value)) || value < min || value > max) {
    throw new ConfigError(
      `${name} must be a ${whole ? 'whole ' : ''}number from ${min} to ${max}; it is "${text}".`,
    );
  }
  return value;
}

export function oneOf<T extends string>(name: string, text: string, fallback: T, allowed: readonly T[]): T {
  if (text === '') return fallback;
  const found = allowed.find((value) => value === text);
  if (!found) throw new ConfigError(`${name} must be one of ${allowed.join(', ')}; it is "${text}".`);
  return found;
}

/** Whether every folder above can be entered by any uid; matters only when the service is root. */
export function reachable(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    try {
      if ((statSync(at).mode & 0o001) === 0 && at !== path) return false;
    } catch {
      // What does not exist yet is made by us, enterable.
    }
    if (dirname(at) === at) return true;
  }
}

export function readBaseUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (
    !url ||
    !/^https?:$/.test(url.protocol) ||
    url.pathname !== '/' ||
    url.search ||
    url.hash ||
    url.username
  ) {
    throw new ConfigError(`BERTH_BASE_URL must be an http or https URL without a path; it is "${text}".`);
  }
  return url.origin;
}

export function readRateLimit(text: string): { quota: number; windowSeconds: number } {
  const match = /^(\d{1,9})\/(\d{1,5})$/.exec(text);
  const quota = Number(match?.[1] ?? 0);
  const windowSeconds = Number(match?.[2] ?? 0);
  if (quota < 1 || windowSeconds < 1) {
    throw new ConfigError(`BERTH_RATE_LIMIT must be <requests>/<seconds>, such as 600/60; it is "${text}".`);
  }
  return { quota, windowSeconds };
}

export function readNetworks(name: string, text: string): string[] {
  const ranges = text
    .split(',')
    .map((range) => range.trim())
    .filter(Boolean);
  for (const range of ranges) {
    const [address = '', bits = '', ...rest] = range.split('/');
    const maxBits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
    if (rest.length > 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > maxBits) {
      throw new ConfigError(
        `${name} must be address ranges such as 127.0.0.0/8,::1/128; "${range}" is none.`,
      );
    }
  }
  return ranges;
}

export function readDefaultEgress(text: string): EgressPolicy {
  const lists = { allow: [], deny: [], transparent: false };
  if (text === 'none' || text === 'open') return { mode: text, presets: [], ...lists };
  const presets = text.split(',').map((name) => name.trim());
  const unknown = presets.find((name) => !Object.hasOwn(egressPresets, name));
  if (unknown === undefined) return { mode: 'list', presets, ...lists };
  throw new ConfigError(
    `BERTH_EGRESS_DEFAULT must be none, open, or some of ${Object.keys(egressPresets).join(', ')}; "${unknown}" is none.`,
  );
}

export function readFileName(name: string, text: string): string | null {
  if (text === '') return null;
  try {
    accessSync(text, constants.R_OK);
  } catch {
    throw new ConfigError(`${name} must name a readable file; "${text}" is none.`);
  }
  return resolve(text);
}
