import { invalid } from './errors.ts';
import type { CredentialSpec, SettingSpec, SettingValue } from './ports/channel.ts';
import { requireStorable } from './text.ts';

const textChars = 4_000;
const listItems = 200;
const credentialBytes = 16 * 1024;

/** Settings as a kind takes them, with its defaults. `given` may be anything; what is wrong is told by its name. */
export function readSettings(
  specs: readonly SettingSpec[],
  given: Readonly<Record<string, unknown>>,
): Record<string, SettingValue> {
  refuseUnknown('settings', given, specs);
  const settings: Record<string, SettingValue> = {};
  for (const spec of specs) {
    const value = given[spec.name];
    if (value !== undefined && value !== null) settings[spec.name] = readSetting(spec, value);
    else if (spec.default !== null) settings[spec.name] = spec.default;
    else if (spec.required) throw invalid(`settings.${spec.name}`, `is needed. ${spec.description}`);
  }
  return settings;
}

function readSetting(spec: SettingSpec, value: unknown): SettingValue {
  const path = `settings.${spec.name}`;
  switch (spec.type) {
    case 'flag':
      if (typeof value !== 'boolean') throw invalid(path, 'must be true or false.');
      return value;
    case 'count':
      if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > 1_000_000) {
        throw invalid(path, 'must be a whole number from 0 to 1,000,000.');
      }
      return Number(value);
    case 'text':
    case 'calledUrl':
    case 'namedUrl':
      return readText(path, value, textChars);
    case 'texts':
      if (!Array.isArray(value) || value.length > listItems) {
        throw invalid(path, `must be a list of at most ${listItems} texts.`);
      }
      return value.map((item, index) => readText(`${path}.${index}`, item, 300));
    default:
      if (typeof value !== 'string' || !spec.type.includes(value)) {
        throw invalid(path, `must be one of ${spec.type.join(', ')}.`);
      }
      return value;
  }
}

function readText(path: string, value: unknown, maxChars: number): string {
  if (typeof value !== 'string' || value.length > maxChars) {
    throw invalid(path, `must be a text of at most ${maxChars} characters.`);
  }
  requireStorable(path, value);
  return value;
}

/** Credentials by name; null takes one away. */
export function readCredentials(
  specs: readonly CredentialSpec[],
  given: Readonly<Record<string, unknown>>,
): Map<string, string | null> {
  refuseUnknown('credentials', given, specs);
  const credentials = new Map<string, string | null>();
  for (const [name, value] of Object.entries(given)) {
    const path = `credentials.${name}`;
    if (value === null) {
      credentials.set(name, null);
      continue;
    }
    if (typeof value !== 'string' || value === '' || Buffer.byteLength(value) > credentialBytes) {
      throw invalid(path, `must be a text of 1 to ${credentialBytes} bytes.`);
    }
    requireStorable(path, value);
    // They go into headers; a key file in JSON or PEM has lines, which those that read it take apart.
    credentials.set(name, value.trim());
  }
  return credentials;
}

function refuseUnknown(
  group: string,
  given: Readonly<Record<string, unknown>>,
  specs: readonly { name: string }[],
): void {
  const known = specs.map(({ name }) => name);
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    throw invalid(`${group}.${name}`, `is none of this kind of channel, which has ${known.join(', ')}.`);
  }
}
