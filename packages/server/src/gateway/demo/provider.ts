import type { Provider } from '../provider.ts';

const free = { input: 0n, cachedInput: 0n, cacheWrite: 0n, output: 0n, long: null };

/** The provider that needs no key: not a model, it says so, and costs nothing. */
export const demoProvider: Provider = {
  name: 'demo',
  kind: 'demo',
  wire: 'openai-chat',
  baseUrl: null,
  keyVariable: '',
  key: null,
  needsKey: false,
  headers: {},
  defaultModel: 'guide',
  models: [],
  prices: new Map([['guide', free]]),
  priceVersion: 'demo',
  asksForUsage: false,
  allowServerTools: false,
};
