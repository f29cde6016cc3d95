import { setTimeout as delay } from 'node:timers/promises';
import { safe } from '../print.ts';
import type { Bridge, Link } from './bridge.ts';
import type { Message } from './messages.ts';

/** After so long without any connection the bridge gives up. */
const GIVE_UP_MS = 5 * 60_000;
const RETRY_MAX_MS = 5_000;
const PING_EVERY_MS = 30_000;
const PONG_WITHIN_MS = 20_000;

/** Codes by which the service says that the client broke a rule (RFC 6455, section 7.4.1): the same again would end so again. */
const hopeless = new Set([1002, 1003, 1007, 1008, 1009]);

export interface ConnectionOptions {
  /** `ws:` or `wss:`. */
  url: string;
  apiKey: string;
  note(text: string): void;
  /** Aborted when the client is gone. */
  signal: AbortSignal;
}

export type End = 'left' | 'refused' | 'lost';

/** Keeps the bridge connected until the client leaves. `refused`: there was no connection at all. */
export async function keepConnected(bridge: Bridge, options: ConnectionOptions): Promise<End> {
  const { signal } = options;
  let wasConnected = false;
  let lastMs = performance.now();
  for (let tries = 0; !signal.aborted; tries += 1) {
    const { isOpened, code, reason } = await connection(bridge, options);
    if (signal.aborted) break;
    if (isOpened) {
      wasConnected = true;
      tries = 0;
      lastMs = performance.now();
    }
    if (!wasConnected) return 'refused';
    if (hopeless.has(code) || performance.now() - lastMs > GIVE_UP_MS) {
      const why =
        reason === '' ? 'The connection to the agent was lost.' : `The service ended it: ${reason}.`;
      options.note(`berth: ${safe(why)}\n`);
      bridge.giveUp(why);
      return 'lost';
    }
    if (tries === 0) options.note('berth: the connection was lost; connecting again\n');
    await delay(Math.min(200 * 2 ** tries, RETRY_MAX_MS), undefined, { signal }).catch(() => undefined);
  }
  return 'left';
}

/** One connection, from its beginning to its end. */
function connection(
  bridge: Bridge,
  { url, apiKey, signal }: ConnectionOptions,
): Promise<{ isOpened: boolean; code: number; reason: string }> {
  const socket = new WebSocket(url, ['berth.acp.v1', `berth.key.${apiKey}`]);
  const link: Link = { send: (message) => socket.send(JSON.stringify(message)) };
  const leave = () => socket.close();
  signal.addEventListener('abort', leave);
  let isOpened = false;
  let ping: NodeJS.Timeout | undefined;
  socket.addEventListener('open', () => {
    isOpened = true;
    ping = setInterval(() => void pinged(bridge, socket), PING_EVERY_MS);
    void bridge.connected(link);
  });
  socket.addEventListener('message', ({ data }) =>
    bridge.fromService(link, JSON.parse(String(data)) as Message),
  );
  socket.addEventListener('error', () => {});
  return new Promise((resolve) => {
    socket.addEventListener('close', ({ code, reason }) => {
      clearInterval(ping);
      signal.removeEventListener('abort', leave);
      bridge.lost(link);
      resolve({ isOpened, code, reason });
    });
  });
}

/** A service that is gone without a word is noticed by its silence. */
async function pinged(bridge: Bridge, socket: WebSocket): Promise<void> {
  const timer = setTimeout(() => socket.close(), PONG_WITHIN_MS);
  await bridge.ping();
  clearTimeout(timer);
}
