import type { Addresses } from '../http/route.ts';

/** Where A2A is at an agent's host; known without the SDK, which is loaded when somebody asks for it. */

export const RPC_PATH = '/a2a';
export const REST_PATH = '/a2a/http';
export const CARD_PATH = '/.well-known/agent-card.json';
/** Where clients of 0.2 looked. */
export const OLD_CARD_PATH = '/.well-known/agent.json';
export const KEYS_PATH = '/.well-known/jwks.json';

/** Where the keys of all agents' cards are: on the app domain itself. */
export function keysUrl({ baseUrl, appDomain }: Addresses): string {
  return `${baseUrl.startsWith('https:') ? 'https' : 'http'}://${appDomain}${KEYS_PATH}`;
}

export const isRpcPath = (path: string): boolean => path === RPC_PATH || path === `${RPC_PATH}/`;

export const isRestPath = (path: string): boolean => path === REST_PATH || path.startsWith(`${REST_PATH}/`);

export const isCardPath = (path: string): boolean => [CARD_PATH, OLD_CARD_PATH, KEYS_PATH].includes(path);
