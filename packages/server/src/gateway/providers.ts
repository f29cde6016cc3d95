import type { ModelWire } from '../domain/ports/model-gateway.ts';
import type { ModelPrice } from './prices.ts';
import { readProviderFile } from './provider-file.ts';
import { catalogPrices, catalogVersion } from './prices.generated.ts';

/** Which paths a provider has, and how it takes its key. */
export type ProviderKind = 'anthropic' | 'openai' | 'gemini' | 'demo';

export interface Provider {
  name: string;
  kind: ProviderKind;
  wire: ModelWire;
  /** Origin and path prefix without a trailing slash; for `openai` with its version (`/v1`), for others without. */
  baseUrl: string | null;
  keyVariable: string;
  key: string | null;
  needsKey: boolean;
  /** Sent with every request. */
  headers: Record<string, string>;
  /** Without the provider's name; empty = there is none. */
  defaultModel: string;
  /** Further names for `GET /models`. */
  models: string[];
  /** By model name, without the provider's. */
  prices: ReadonlyMap<string, ModelPrice>;
  priceVersion: string;
  /** Whether streamed Chat Completions report usage only when asked by `stream_options`. */
  asksForUsage: boolean;
  /** Whether the provider may run tools of its own (web search, code, remote MCP), which pass by our egress rules. */
  allowServerTools: boolean;
}

/** A provider that cannot be used as it is written: the message begins with the variable's name. */
export class ProviderConfigError extends Error {}

interface BuiltIn {
  kind: ProviderKind;
  baseUrl: string;
  defaultModel: string;
  needsKey?: false;
  /** Mistral refuses fields that it does not know and reports usage anyway. */
  asksForUsage?: false;
}

/** In the order in which one becomes the default. */
const builtIns: Record<string, BuiltIn> = {
  anthropic: { kind: 'anthropic', baseUrl: 'https://api.anthropic.com', defaultModel: 'claude-sonnet-5-5' },
  openai: { kind: 'openai', baseUrl: 'https://api.openai.com/v1', defaultModel: 'gpt-6.2-sol' },
  gemini: {
    kind: 'gemini',
    baseUrl: 'https://generativelanguage.googleapis.com',
    defaultModel: 'gemini-3.8-flash',
  },
  openrouter: { kind: 'openai', baseUrl: 'https://openrouter.ai/api/v1', defaultModel: 'openrouter/auto' },
  mistral: {
    kind: 'openai',
    baseUrl: 'https://api.mistral.ai/v1',
    defaultModel: 'mistral-large-latest',
    asksForUsage: false,
  },
  groq: { kind: 'openai', baseUrl: 'https://api.groq.com/openai/v1', defaultModel: 'openai/gpt-oss-120b' },
  deepseek: { kind: 'openai', baseUrl: 'https://api.deepseek.com/v1', defaultModel: 'deepseek-flash' },
  xai: { kind: 'openai', baseUrl: 'https://api.x.ai/v1', defaultModel: 'grok-4.7' },
  cerebras: { kind: 'openai', baseUrl: 'https://api.cerebras.ai/v1', defaultModel: 'gpt-oss-120b' },
  together: { kind: 'openai', baseUrl: 'https://api.together.ai/v1', defaultModel: 'openai/gpt-oss-120b' },
  moonshot: { kind: 'openai', baseUrl: 'https://api.moonshot.ai/v1', defaultModel: 'kimi-k3.1-pro' },
  ollama: { kind: 'openai', baseUrl: 'http://127.0.0.1:11434/v1', defaultModel: '', needsKey: false },
};

export const demoProviderName = 'demo';

type Env = Record<string, string | undefined>;

/**
 * The provider table: built-in entries, changed by `<PROVIDER>_API_KEY` and `<PROVIDER>_BASE_URL`, then what the file
 * of BERTH_MODEL_PROVIDERS (its text, or null) adds or replaces, in the order in which one becomes the default model.
 * Throws ProviderConfigError. The operator's addresses are trusted; a request can never name one.
 */
export function readProviders(env: Env, fileJson: string | null): Map<string, Provider> {
  const providers = new Map<string, Provider>();
  // What the operator wrote down by hand is meant more than a key that happens to be in the environment.
  for (const provider of readProviderFile(fileJson, env)) providers.set(provider.name, provider);
  for (const [name, builtIn] of Object.entries(builtIns)) {
    if (!providers.has(name)) providers.set(name, fromEnvironment(name, builtIn, env));
  }
  return providers;
}

function fromEnvironment(name: string, builtIn: BuiltIn, env: Env): Provider {
  const keyVariable = `${name.toUpperCase()}_API_KEY`;
  const urlVariable = `${name.toUpperCase()}_BASE_URL`;
  const ownUrl = env[urlVariable]?.trim();
  const needsKey = builtIn.needsKey ?? true;
  return {
    name,
    kind: builtIn.kind,
    wire: builtIn.kind === 'anthropic' ? 'anthropic' : 'openai-chat',
    baseUrl: ownUrl ? baseUrlOf(builtIn.kind, ownUrl, urlVariable) : builtIn.baseUrl,
    keyVariable: needsKey ? keyVariable : '',
    key: checkedKey(env[keyVariable], keyVariable),
    needsKey,
    headers: {},
    defaultModel: builtIn.defaultModel,
    models: [],
    prices: pricesOf(name),
    priceVersion: catalogVersion,
    asksForUsage: builtIn.asksForUsage ?? true,
    allowServerTools: false,
  };
}

/** Lists have prices for the vendors' own addresses; whoever runs models at home pays nothing for a token. */
function pricesOf(name: string): ReadonlyMap<string, ModelPrice> {
  return catalogPrices.get(name) ?? new Map<string, ModelPrice>();
}

/**
 * Brings an address to the form that paths are joined to. Vendors' clients differ in whether the version belongs to it,
 * so both ways of writing it are understood.
 */
export function baseUrlOf(kind: ProviderKind, text: string, variable: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash || url.username || url.password) {
    throw new ProviderConfigError(
      `${variable} must be an http or https URL without user, query and fragment, such as http://127.0.0.1:8000/v1.`,
    );
  }
  const path = url.pathname.replace(/\/+$/, '');
  if (kind === 'anthropic') return url.origin + path.replace(/\/v1$/, '');
  if (kind === 'gemini') return url.origin + path.replace(/\/v1beta(\/openai)?$/, '');
  return url.origin + (path === '' ? '/v1' : path);
}

/** Trims, and refuses what could not stand in a header; the value is never shown. */
export function checkedKey(text: string | undefined, variable: string): string | null {
  const key = text?.trim() ?? '';
  if (key === '') return null;
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new ProviderConfigError(
      `${variable} holds spaces or characters that no key has (its value is not shown).`,
    );
  }
  return key;
}
