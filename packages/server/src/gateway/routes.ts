import { WireError } from './wires.ts';
import type { Purpose, Wire } from './wires.ts';

export interface Route {
  /** Null: `/llm/v1/…`, where the body's `model` names the provider. */
  provider: string | null;
  wire: Wire;
  purpose: Purpose;
  /** The path below the API's version, e.g. `chat/completions`; for Gemini without the model. */
  operation: string;
  /** Gemini names the model in the path. */
  pathModel: string | null;
  /** With its `?`, or empty. */
  query: string;
}

/**
 * Names of the versions that client libraries put before an operation, depending on how their base URL was set. They
 * say nothing, since the provider's own version is put in again.
 */
const version = /^(?:v1beta\/openai|v1alpha|v1beta|openai\/v1|api\/v1|v1|openai)\//;

const posts: Record<string, { wire: Wire; purpose: Purpose }> = {
  messages: { wire: 'anthropic', purpose: 'generate' },
  'messages/count_tokens': { wire: 'anthropic', purpose: 'count' },
  'chat/completions': { wire: 'openai-chat', purpose: 'generate' },
  embeddings: { wire: 'openai-chat', purpose: 'embed' },
  responses: { wire: 'openai-responses', purpose: 'generate' },
  'responses/compact': { wire: 'openai-responses', purpose: 'generate' },
};

const geminiMethods: Record<string, Purpose> = {
  generateContent: 'generate',
  streamGenerateContent: 'generate',
  countTokens: 'count',
  embedContent: 'embed',
};

/**
 * Reads a request line. Only the listed operations exist: files, batches, stored responses and everything about the
 * account behind a shared key would reach across tenants. Returns null for all else.
 */
export function parseRoute(method: string, target: string): Route | null {
  const mark = target.indexOf('?');
  const path = mark === -1 ? target : target.slice(0, mark);
  // Nothing that another parser could read otherwise: no escapes, no empty, `.` or `..` segments, no absolute form.
  if (!/^\/llm(?:\/[A-Za-z0-9_.:@-]+)+$/.test(path) || /\/\.{1,2}(?:\/|$)/.test(path)) return null;
  const [provider = '', ...segments] = path.slice('/llm/'.length).split('/');
  const rest = segments.join('/');
  const operation = provider === 'v1' ? rest : rest.replace(version, '');
  const query = mark === -1 ? '' : checkedQuery(target.slice(mark));
  const route = { provider: provider === 'v1' ? null : provider, query, pathModel: null };

  if (method === 'GET') {
    if (operation !== 'models' && !operation.startsWith('models/')) return null;
    const wire = listWire(provider, rest);
    return {
      ...route,
      wire,
      purpose: 'list',
      operation,
      pathModel: operation.slice('models/'.length) || null,
    };
  }
  if (method !== 'POST') return null;
  const known = Object.hasOwn(posts, operation) ? posts[operation] : undefined;
  if (known && (provider !== 'v1' || operation === 'chat/completions'))
    return { ...route, ...known, operation };
  return provider === 'v1' ? null : geminiRoute(route, operation);
}

function geminiRoute(route: Pick<Route, 'provider' | 'query'>, operation: string): Route | null {
  const match = /^models\/([^:]+):([A-Za-z]+)$/.exec(operation);
  const [, model, name] = match ?? [];
  const purpose = name && Object.hasOwn(geminiMethods, name) ? geminiMethods[name] : undefined;
  if (!model || !name || !purpose) return null;
  return { ...route, wire: 'gemini', purpose, operation: name, pathModel: model };
}

/** Both vendors list under the same path; their clients want their own shape. */
function listWire(provider: string, rest: string): Wire {
  if (rest.startsWith('v1beta/models')) return 'gemini';
  return provider === 'anthropic' ? 'anthropic' : 'openai-chat';
}

/** A credential in a URL ends up in logs, and the provider may prefer it to the header that we put in. */
function checkedQuery(query: string): string {
  if (!/^\?[A-Za-z0-9_.,:=&$-]*$/.test(query)) {
    throw new WireError('bad_request', 'The query holds characters that this gateway does not pass on.');
  }
  for (const pair of query.slice(1).split('&')) {
    const name = pair.split('=')[0] ?? '';
    if (/key|token|auth/i.test(name)) {
      throw new WireError(
        'bad_request',
        `The query parameter "${name}" is refused: send the token as x-api-key, x-goog-api-key or Authorization: Bearer.`,
      );
    }
  }
  return query;
}
