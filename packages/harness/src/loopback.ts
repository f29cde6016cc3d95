import { dirname, join } from 'node:path';
import { openEgress } from './egress.ts';
import { listen, pipeTo } from './pipe-socket.ts';
import type { Settings } from './settings.ts';

/**
 * Loopback ports that lead to the model gateway and to the proxy for the outside, for programs that know HTTP but no Unix
 * sockets; bytes pass unread. They are opened when the first child process needs them: many conversations never start one.
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
    this.#env ??= this.#open();
    return this.#env;
  };

  async #open(): Promise<Record<string, string>> {
    const egressSocket = join(dirname(this.#gatewaySocket), 'egress.sock');
    const [port, proxy] = await Promise.all([
      listen(pipeTo(this.#gatewaySocket), 0, '127.0.0.1'),
      openEgress(egressSocket, this.#baseEnv),
    ]);
    return { ...this.#baseEnv, ...proxy, ...this.#modelEnv(`http://127.0.0.1:${port}`) };
  }

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
}
