import type { ModelPrice } from './prices.ts';
import { baseUrlOf, checkedKey } from './provider.ts';
import type { Provider, ProviderKind } from './provider.ts';
import { readProviderFile } from './provider-file.ts';
import { catalogPrices, catalogVersion } from './prices.generated.ts';

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

function pricesOf(name: string): ReadonlyMap<string, ModelPrice> {
  return catalogPrices.get(name) ?? new Map<string, ModelPrice>();
}
