import type { IncomingMessage } from 'node:http';
import type { PreparedWebSocketUpgrade } from '@agentclientprotocol/sdk/experimental/server';
import type { WebSocket } from 'ws';
import { WebSocketServer } from 'ws';
import { DomainError } from '../../domain/errors.ts';
import type { BodyHold } from '../../domain/flight.ts';
import { limits } from '../../domain/limits.ts';
import { bySize, type BodySender, type Sliced } from '../../domain/slices.ts';
import { comeAgainLater } from './assembly.ts';
import { InOrder } from './in-order.ts';
import { isRefusal, readText, refusal, type Refusal } from './incoming.ts';

const PING_MS = 15_000;
/** Messages and bytes a second that a client may send, in bursts of as many. */
const MESSAGES_A_SECOND = 200;
const BYTES_A_SECOND = 8 * 1024 * 1024;
/** RFC 6455, section 7.4.1: what was sent is not taken here, or too much of it. */
const closeCodes = { unsupported: 1003, policy: 1008 } as const;

/** Accepts WebSockets; the answer to the upgrade names the connection. */
export function createSockets(nameOf: (request: IncomingMessage) => string | undefined): WebSocketServer {
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    // Compression holds memory for each connection.
    perMessageDeflate: false,
    maxPayload: limits.acpMessageBytes,
    handleProtocols: (offered) => [...offered].find((one) => !one.startsWith('berth.key.')) ?? false,
  });
  server.on('headers', (headers: string[], request: IncomingMessage) => {
    const id = nameOf(request);
    if (id !== undefined) headers.push(`Acp-Connection-Id: ${id}`);
  });
  return server;
}

/** What the SDK takes for a socket. */
type SdkSocket = Parameters<PreparedWebSocketUpgrade['accept']>[0];
type Listener = (...args: unknown[]) => void;

/**
 * A client that is gone without a word is noticed by its silence, and one that floods is let go. What is refused here
 * does not reach the SDK. A large message has turns with those of other `sender`s; what comes behind it waits, unread
 * if it can. `heard` gives what holds the bytes of a message that has come.
 */
export function guarded(socket: WebSocket, sender: BodySender, heard: () => BodyHold): SdkSocket {
  let isAlive = true;
  const order = new InOrder((isBusy) => (isBusy ? socket.pause() : socket.resume()));
  const mayTake = createAllowance();
  const ping = setInterval(() => {
    // While nothing is read, no answer to a ping is either.
    if (!isAlive && !order.isBusy) return socket.terminate();
    isAlive = order.isBusy;
    socket.ping();
  }, PING_MS).unref();
  socket.on('pong', () => (isAlive = true));
  // What breaks the protocol closes the connection by itself.
  socket.on('error', () => {});
  socket.once('close', () => clearInterval(ping));

  let isInitialized = false;
  /** The answer to what does not reach the SDK; null: there is none. */
  function* refused(text: string, hold: BodyHold): Sliced<Refusal | 'pass' | null> {
    const read = yield* readText(text, hold);
    if (isRefusal(read)) return read;
    if (read.kind === 'initialize') isInitialized = true;
    if (isInitialized) return 'pass';
    // The SDK would end a connection that begins with something else.
    return read.kind === 'request' ? refusal('request', 'Send "initialize" first.', read.id) : null;
  }
  /** Of a client that reads nothing, not even refusals are kept for ever. */
  const send = (text: string): void => {
    if (socket.bufferedAmount > limits.acpUnreadBytes)
      socket.close(closeCodes.policy, 'read what you are sent');
    else socket.send(text, () => {});
  };
  function* take(data: Buffer, hold: BodyHold, listener: Listener): Sliced<void> {
    yield;
    // It is UTF-8: the socket has looked.
    const text = data.toString('utf8');
    yield;
    let answer: Refusal | 'pass' | null;
    try {
      answer = yield* refused(text, hold);
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      return comeAgainLater(socket);
    }
    // The SDK parses it again.
    yield;
    if (answer === 'pass') listener(text);
    else if (answer !== null) send(JSON.stringify(answer));
  }

  function mayHear(data: Buffer, isBinary: boolean): boolean {
    if (socket.readyState !== socket.OPEN) return false;
    if (isBinary) socket.close(closeCodes.unsupported, 'send text frames');
    else if (mayTake(data.length)) return true;
    else socket.close(closeCodes.policy, 'too fast');
    return false;
  }

  return {
    get readyState() {
      return socket.readyState;
    },
    get bufferedAmount() {
      return socket.bufferedAmount;
    },
    send: (text) => socket.send(text, () => {}),
    close: (code, reason) => socket.close(code, reason),
    on(type, listener) {
      // What came before it is heard before it.
      if (type === 'close')
        return socket.on(type, (...told) => order.add(() => (listener as Listener)(...told)));
      if (type !== 'message') return socket.on(type, listener);
      return socket.on('message', (data: Buffer, isBinary) => {
        isAlive = true;
        const hold = heard();
        if (!mayHear(data, isBinary)) return hold.drop();
        const { length } = data;
        order.add(() => letGo(hold, bySize(sender, length, take(data, hold, listener as Listener))));
      });
    },
    // The SDK lets go of a socket only when it is closed.
    off: (type: string, listener: Listener) => socket.off(type, listener),
  };
}

/** Drops what held a message when the work on it is done. */
function letGo(hold: BodyHold, work: void | Promise<void>): void | Promise<void> {
  if (work instanceof Promise) return work.finally(hold.drop);
  hold.drop();
}

function createAllowance(): (bytes: number) => boolean {
  let messages = MESSAGES_A_SECOND;
  let bytes = BYTES_A_SECOND;
  let filledMs = performance.now();
  return (size) => {
    const nowMs = performance.now();
    const seconds = (nowMs - filledMs) / 1000;
    filledMs = nowMs;
    messages = Math.min(MESSAGES_A_SECOND, messages + seconds * MESSAGES_A_SECOND) - 1;
    bytes = Math.min(BYTES_A_SECOND, bytes + seconds * BYTES_A_SECOND) - size;
    return messages >= 0 && bytes >= 0;
  };
}
