import { get } from 'node:http';
import type { Provider } from './provider.ts';

const timeoutMs = 300;
const recheckMs = 30_000;
const maxBytes = 1024 * 1024;

export interface OllamaWatch {
  check(): Promise<void>;
  /** As of the last look; an old one starts another in the background. */
  isFound(): boolean;
  /** The model that was changed last; null = none is there. */
  firstModel(): string | null;
}

/** Finds a local Ollama by its list of models (GET /api/tags), now and whenever the answer has grown old. */
export function findOllama(provider: Provider | undefined, isWanted: boolean): OllamaWatch {
  let models: string[] = [];
  let checkedAt = 0;
  const origin = provider?.baseUrl ? new URL(provider.baseUrl).origin : null;
  const check = async (): Promise<void> => {
    checkedAt = Date.now();
    if (origin?.startsWith('http:') && isWanted) models = await tags(`${origin}/api/tags`).catch(() => []);
  };
  const isFound = (): boolean => {
    if (Date.now() - checkedAt > recheckMs) void check();
    return models.length > 0;
  };
  return { check, isFound, firstModel: () => (isFound() ? (models[0] ?? null) : null) };
}

function tags(url: string): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent: false, signal: AbortSignal.timeout(timeoutMs) }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > maxBytes) response.destroy(new Error('too long'));
        else chunks.push(chunk);
      });
      response.on('error', reject);
      response.on('end', () => {
        try {
          resolve(namesIn(JSON.parse(Buffer.concat(chunks).toString('utf8'))));
        } catch (error) {
          reject(error as Error);
        }
      });
    });
    request.on('error', reject);
  });
}

/** Something else may listen on that port: what is not Ollama's answer has no models. */
function namesIn(answer: unknown): string[] {
  const models = typeof answer === 'object' && answer !== null && 'models' in answer ? answer.models : [];
  if (!Array.isArray(models)) return [];
  return models
    .map((model: unknown) =>
      typeof model === 'object' && model !== null && 'name' in model ? model.name : null,
    )
    .filter((name): name is string => typeof name === 'string' && /^[^\s/][^\s]{0,199}$/.test(name));
}
