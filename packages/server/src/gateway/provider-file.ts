import { readFileSync } from 'node:fs';
import { parseDollars } from '../domain/money.ts';
import { baseUrlOf, checkedKey, ProviderConfigError } from './provider.ts';
import type { Provider, ProviderKind } from './provider.ts';
import type { ModelPrice } from './prices.ts';

type Env = Record<string, string | undefined>;
type Fields = Record<string, unknown>;

const variable = 'BERTH_MODEL_PROVIDERS';
const wires: Record<string, ProviderKind> = {
  anthropic: 'anthropic',
  'openai-chat': 'openai',
  gemini: 'gemini',
};
/** Names that stand for something else in the gateway's paths. */
const reserved = new Set(['v1', 'demo']);

const known = new Set([
  'baseUrl',
  'wire',
  'apiKeyVariable',
  'apiKeyFile',
  'defaultModel',
  'models',
  'headers',
  'prices',
  'streamOptions',
  'allowServerTools',
]);

/**
 * Reads the JSON text of the operator's provider file, `{"<name>": {"baseUrl": …, "wire": …}}` (docs/models.md). Errors
 * name the field; a field that is not known is refused, since it is most likely mistyped.
 */
export function readProviderFile(text: string | null, env: Env): Provider[] {
  if (text === null) return [];
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw new ProviderConfigError(`${variable} must name a JSON file: ${(error as Error).message}`);
  }
  if (!isObject(parsed)) throw new ProviderConfigError(`${variable} must hold an object, {"<name>": {…}}.`);
  return Object.entries(parsed).map(([name, fields]) => readEntry(name, fields, env));
}

function readEntry(name: string, fields: unknown, env: Env): Provider {
  if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(name) || reserved.has(name)) {
    throw problem(name, 'a provider is named by a-z, 0-9, "_" and "-", and not "v1" or "demo"');
  }
  if (!isObject(fields)) throw problem(name, 'must be an object');
  for (const field of Object.keys(fields)) {
    if (!known.has(field))
      throw problem(`${name}.${field}`, `is not a field; there are ${[...known].join(', ')}`);
  }
  const wire = fields['wire'];
  const kind = typeof wire === 'string' && Object.hasOwn(wires, wire) ? wires[wire] : undefined;
  if (!kind) throw problem(`${name}.wire`, `must be one of ${Object.keys(wires).join(', ')}`);
  const { key, keyVariable, needsKey } = readKey(name, fields, env);
  return {
    name,
    kind,
    wire: kind === 'anthropic' ? 'anthropic' : 'openai-chat',
    baseUrl: baseUrlOf(kind, text(name, fields, 'baseUrl', true), `${variable}: ${name}.baseUrl`),
    keyVariable,
    key,
    needsKey,
    headers: readHeaders(name, fields),
    defaultModel: text(name, fields, 'defaultModel', false),
    models: readModels(name, fields),
    prices: readPrices(name, fields),
    priceVersion: 'operator',
    asksForUsage: flag(name, fields, 'streamOptions', true),
    allowServerTools: flag(name, fields, 'allowServerTools', false),
  };
}

function readKey(name: string, fields: Fields, env: Env): Pick<Provider, 'key' | 'keyVariable' | 'needsKey'> {
  const keyVariable = text(name, fields, 'apiKeyVariable', false);
  const keyFile = text(name, fields, 'apiKeyFile', false);
  if (keyVariable && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(keyVariable)) {
    throw problem(`${name}.apiKeyVariable`, 'must be the name of an environment variable');
  }
  if (!keyFile)
    return { key: checkedKey(env[keyVariable], keyVariable), keyVariable, needsKey: keyVariable !== '' };
  try {
    const key = checkedKey(readFileSync(keyFile, 'utf8'), `${variable}: ${name}.apiKeyFile`);
    return { key, keyVariable, needsKey: true };
  } catch (error) {
    if (error instanceof ProviderConfigError) throw error;
    throw problem(
      `${name}.apiKeyFile`,
      `"${keyFile}" cannot be read (${(error as NodeJS.ErrnoException).code})`,
    );
  }
}

function readHeaders(name: string, fields: Fields): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [header, value] of Object.entries(objectField(name, fields, 'headers'))) {
    const where = `${name}.headers.${header}`;
    if (!/^[A-Za-z0-9-]+$/.test(header)) throw problem(where, 'is not a header name');
    if (typeof value !== 'string' || !/^[\x20-\x7e]*$/.test(value))
      throw problem(where, 'must be a printable text');
    headers[header.toLowerCase()] = value;
  }
  return headers;
}

function readModels(name: string, fields: Fields): string[] {
  const models = fields['models'] ?? [];
  if (!Array.isArray(models) || !models.every((model) => typeof model === 'string' && model !== '')) {
    throw problem(`${name}.models`, 'must be a list of model names');
  }
  return models as string[];
}

function readPrices(name: string, fields: Fields): Map<string, ModelPrice> {
  const prices = new Map<string, ModelPrice>();
  for (const [model, value] of Object.entries(objectField(name, fields, 'prices'))) {
    const where = `${name}.prices.${model}`;
    if (!isObject(value)) throw problem(where, 'must be an object {input, cachedInput?, output}');
    const price = (field: string, fallback: bigint | null): bigint => {
      const dollars = value[field];
      if (dollars === undefined && fallback !== null) return fallback;
      const micros = typeof dollars === 'string' ? parseDollars(dollars) : null;
      if (micros === null) {
        throw problem(
          `${where}.${field}`,
          'must be dollars per million tokens as a decimal text, such as "0.25"',
        );
      }
      return micros;
    };
    const input = price('input', null);
    prices.set(model, {
      input,
      cachedInput: price('cachedInput', input),
      cacheWrite: price('cacheWrite', input),
      output: price('output', null),
      long: null,
    });
  }
  return prices;
}

function text(name: string, fields: Fields, field: string, isRequired: boolean): string {
  const value = fields[field];
  if (value === undefined && !isRequired) return '';
  if (typeof value !== 'string' || value.trim() === '') throw problem(`${name}.${field}`, 'must be a text');
  return value.trim();
}

function flag(name: string, fields: Fields, field: string, fallback: boolean): boolean {
  const value = fields[field] ?? fallback;
  if (typeof value !== 'boolean') throw problem(`${name}.${field}`, 'must be true or false');
  return value;
}

function objectField(name: string, fields: Fields, field: string): Fields {
  const value = fields[field] ?? {};
  if (!isObject(value)) throw problem(`${name}.${field}`, 'must be an object');
  return value;
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function problem(where: string, what: string): ProviderConfigError {
  return new ProviderConfigError(`${variable}: ${where}: ${what}.`);
}
