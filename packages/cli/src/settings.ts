import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

export interface Settings {
  url: string;
  key: string;
}

type Env = Record<string, string | undefined>;

export function settingsFile(env: Env): string {
  return join(env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'berth', 'config.json');
}

/** BERTH_URL and BERTH_API_KEY win over what `berth login` stored; null when there is no key at all. */
export function readSettings(env: Env): Settings | null {
  const stored = readStored(env);
  const key = env['BERTH_API_KEY']?.trim() || stored?.key;
  if (!key) return null;
  return { url: env['BERTH_URL']?.trim() || stored?.url || 'http://localhost:8080', key };
}

function readStored(env: Env): Settings | null {
  try {
    return JSON.parse(readFileSync(settingsFile(env), 'utf8')) as Settings;
  } catch {
    return null;
  }
}

export function writeSettings(env: Env, settings: Settings): string {
  const file = settingsFile(env);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writeFileSync(`${file}.new`, `${JSON.stringify(settings)}\n`, { mode: 0o600 });
  chmodSync(`${file}.new`, 0o600);
  renameSync(`${file}.new`, file);
  return file;
}
