import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { Settings } from './settings.ts';

/**
 * A loopback port that leads to the model gateway, for programs that know HTTP but no Unix sockets; bytes pass unread.
 * It is opened when the first child process needs it: many conversations never start one.
 */
export class Loopback {
  readonly #settings: Settings;
  readonly #gatewaySocket: string;
  readonly #baseEnv: Record<string, string>;
  #env: Promise<Record<string, string>> | null = null;

  constructor(settings: Settings, gatewaySocket: string, baseEnv: NodeJS.ProcessEnv) {
    this.#settings = settings;
    this.#gatewaySocket = gatewaySocket;
    this.#baseEnv = Object.fromEntries(
      Object.entries(baseEnv).filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
  }

  /** The environment of child processes, with the usual names of base URLs and keys. */
  childEnv = (): Promise<Record<string, string>> => {
    this.#env ??= this.#listen().then((port) => ({
      ...this.#baseEnv,
      ...this.#modelEnv(`http://127.0.0.1:${port}`),
    }));
    return this.#env;
  };

  #modelEnv(url: string): Record<string, string> {
    const { token, wire, provider } = this.#settings;
    const openai = wire === 'openai-chat' ? `${url}/llm/${provider}/v1` : `${url}/llm/v1`;
    const anthropic = wire === 'anthropic' ? `${url}/llm/${provider}` : `${url}/llm/anthropic`;
    return {
      ANTHROPIC_BASE_URL: anthropic,
      ANTHROPIC_API_KEY: token,
      ANTHROPIC_AUTH_TOKEN: token,
      OPENAI_BASE_URL: openai,
      OPENAI_API_KEY: token,
      GOOGLE_GEMINI_BASE_URL: `${url}/llm/gemini`,
      GEMINI_API_KEY: token,
    };
  }

  #listen(): Promise<number> {
    const server = createServer({ allowHalfOpen: true }, (client) => {
      const upstream = connect({ path: this.#gatewaySocket, allowHalfOpen: true });
      client.pipe(upstream).pipe(client);
      client.on('error', () => upstream.destroy());
      upstream.on('error', () => client.destroy());
      client.on('close', () => upstream.destroy());
    });
    // It must not keep the process alive once stdin has ended.
    server.unref();
    return new Promise((resolve, reject) => {
      server.on('error', reject);
      server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
    });
  }
}
