import type { ModelWire } from '../domain/ports/model-gateway.ts';
import type { ModelPrice } from './prices.ts';

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
