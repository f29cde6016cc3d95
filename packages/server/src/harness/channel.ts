import type { RunningSandbox } from '../domain/ports/sandbox.ts';
import { textOf } from './clean.ts';
import type { Json } from './clean.ts';
import type { Endpoint, Notes } from './control/endpoint.ts';
import { lineCost, requestChars } from './control/reading-pace.ts';
import { exitError, HarnessError } from './harness-error.ts';
import { isQuestion, refusedQuestion } from './questions.ts';
import type { QuestionMethod } from './questions.ts';
import { RpcPeer } from './rpc-peer.ts';

export interface HarnessCapabilities {
  /** Takes earlier turns and interrupted attempts as such (docs/design/sandbox-launch.md). */
  history: boolean;
  /** Has `session/close`. */
  close: boolean;
  prompt: PromptKinds;
}

/** What a prompt may hold beside texts and links (`promptCapabilities`). */
export interface PromptKinds {
  image: boolean;
  audio: boolean;
  embeddedContext: boolean;
}

export interface LinePlace {
  /** What it counts for: its length, or more where it holds many names and values. */
  chars: number;
  /** The position of the byte after it. */
  end: number;
}

/** Everything that an `AcpHarness` talks to. */
export interface Channel {
  peer: RpcPeer;
  /** False: it is of no turn. */
  onUpdate: (sessionId: string, update: unknown, line: LinePlace) => boolean;
  onQuestion: (method: QuestionMethod, id: string | number, params: Json, line: LinePlace) => Promise<Json>;
  /** The harness waits until what it told is on record (docs/design/sandbox-launch.md). */
  onRecord: (params: Json) => Promise<Json>;
  /** A line was handled. */
  onLine: (end: number) => void;
  /** What a line has cost beyond its reading: what comes next waits for it. */
  charge: (chars: number) => void;
  /** Nothing more is read before the answer is called. */
  wait: () => () => void;
  /** The position after the last line that was written to the harness. */
  written: () => number;
  /** The line that ends there may not be acknowledged until the answer is called. */
  hold: (end: number) => () => void;
  /** The end of the first line that is held; Infinity when there is none. */
  firstHeld: () => number;
  /** Nobody needs the lines before it any more. */
  ack: (position: number) => void;
  /** What the next process of the service is to know; null forgets it. */
  note: (key: string, value: unknown) => void;
  /** A turn begins: what was said beside the others is forgotten. */
  forgive: () => void;
  /** A turn is to stop: the harness' answer stands behind all that it told, and is waited for. Until the next turn begins. */
  hurry: () => void;
  /** Ends all open requests with the error. */
  fail: (error: Error) => void;
  /** No more input for the harness. */
  end: () => void;
}

/** Banners of a wrapper script are forgiven, a stream of something else is not. */
const maxJunkLines = 100;
/**
 * What a harness may say beside its turns (chunks that come late, methods that we do not have, blank lines) since its last turn began.
 * Each message costs the host time whatever is in it, and all agents share the host.
 */
const maxNoiseChars = 16 * 1024 * 1024;
const noiseLineChars = 256;

export function openChannel(
  endpoint: Endpoint,
  sandbox: RunningSandbox,
  launcherNotes: () => Promise<string>,
  onHello: (notes: Notes) => void,
): { channel: Channel } {
  let junk = 0;
  let noiseChars = 0;
  let line: LinePlace = { chars: 0, end: 0 };
  const held = new Set<number>();
  let isBroken = false;
  const breakOff = (message: string) => {
    isBroken = true;
    peer.fail(new HarnessError('harness_error', message));
    // A harness that does not speak the protocol cannot be driven any more: whoever keeps the sandbox sees it end.
    sandbox.kill().catch(() => undefined);
  };
  const noise = () => {
    noiseChars += line.chars + noiseLineChars;
    if (noiseChars > maxNoiseChars) breakOff('The harness wrote too much outside of its turns.');
  };
  const request = (method: string, params: Json, id: string | number): Promise<Json> | null => {
    // Counted although it may be of a turn: each one is answered, whatever it asks for.
    noise();
    endpoint.charge(requestChars);
    if (isQuestion(method)) return channel.onQuestion(method, id, params, line);
    if (method !== '_berth.dev/record') return null;
    return channel.onRecord(params).finally(channel.hold(line.end));
  };
  const peer = new RpcPeer({
    write: (text) => endpoint.write(text),
    onNotification: (method, params) => {
      const isOfTurn =
        method === 'session/update' && channel.onUpdate(textOf(params['sessionId']), params['update'], line);
      if (!isOfTurn) noise();
    },
    onRequest: request,
    onJunk: () => {
      if (++junk === maxJunkLines)
        breakOff('The harness wrote something else than Agent Client Protocol to its output.');
    },
  });
  const channel: Channel = {
    peer,
    onUpdate: () => false,
    onQuestion: async (method) => refusedQuestion(method),
    onRecord: async () => ({}),
    onLine: () => undefined,
    charge: (chars) => endpoint.charge(chars),
    wait: () => endpoint.wait(),
    written() {
      peer.flush();
      return endpoint.written;
    },
    hold(end) {
      held.add(end);
      return () => void held.delete(end);
    },
    firstHeld: () => held.values().next().value ?? Infinity,
    ack: (position) => endpoint.ack(position),
    note: (key, value) => endpoint.note(key, value),
    forgive() {
      noiseChars = 0;
      endpoint.isHurried = false;
    },
    hurry: () => (endpoint.isHurried = true),
    fail: (error) => {
      endpoint.close();
      peer.fail(error);
    },
    end: () => endpoint.end(),
  };
  endpoint.events = {
    onLine: (text, end, values) => {
      // What was on its way when it was ended is worth no work any more.
      if (isBroken) return;
      line = { chars: lineCost(text.length, values), end };
      // A blank line says nothing, but the launcher keeps it like any other until it is acknowledged.
      if (text.trim() === '') noise();
      else peer.line(text);
      channel.onLine(end);
    },
    onHello,
    onBroken: breakOff,
  };
  const ended = async (): Promise<HarnessError> => {
    try {
      const exit = await sandbox.exited;
      // What it told before its end may still be on the way.
      await endpoint.drained();
      return exitError(exit, await launcherNotes());
    } catch {
      // Whoever keeps the sandbox says what went wrong.
      return new HarnessError('harness_error', 'The end of the sandbox could not be found out.');
    }
  };
  void ended().then((error) => {
    peer.fail(error);
    endpoint.close();
  });
  return { channel };
}
