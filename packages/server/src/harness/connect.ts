import type { InitializeRequest } from '@agentclientprotocol/sdk';
import type { Log } from '../domain/log.ts';
import type { ConnectHarness } from '../domain/ports/harness.ts';
import type { RunningSandbox } from '../domain/ports/sandbox.ts';
import { isRecord } from './clean.ts';
import type { Json } from './clean.ts';
import { AcpHarness } from './acp-harness.ts';
import type { Channel, HarnessCapabilities } from './channel.ts';
import { exitError, HarnessError } from './harness-error.ts';
import { LineReader } from './line-reader.ts';
import { RpcFailure, RpcPeer } from './rpc-peer.ts';
import { StderrTail } from './stderr-tail.ts';

const maxLineChars = 8 * 1024 * 1024;
/** Banners of a wrapper script are forgiven, a stream of something else is not. */
const maxJunkLines = 100;
/**
 * What a harness may say beside its turns (chunks that come late, methods that we do not have) since its last turn began.
 * Each message costs the host time whatever is in it, and all agents share the host.
 */
const maxNoiseChars = 16 * 1024 * 1024;
const noiseLineChars = 256;
/** What waits for a harness that does not read: many times the longest history. */
const maxUnreadBytes = 64 * 1024 * 1024;
/** Between the end of the output and the news of how the process ended. */
const exitGraceMs = 2000;

const initializeParams = {
  protocolVersion: 1,
  clientCapabilities: {
    fs: { readTextFile: false, writeTextFile: false },
    terminal: false,
    _meta: { 'berth.dev': { record: true } },
  },
  clientInfo: { name: 'berth', title: 'Berth', version: '0.1.0' },
} satisfies InitializeRequest;

/** Makes the client side of Agent Client Protocol over a sandbox's stdio. What comes from there is hostile until checked. */
export function harnessConnector(options: { log: Log; workspace?: string }): ConnectHarness {
  const { log, workspace = '/workspace' } = options;
  return async (sandbox, { initializeTimeoutMs }) => {
    const channel = openChannel(sandbox, log.child({ sandboxId: sandbox.id }));
    let timer: NodeJS.Timeout | undefined;
    const tooLate = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(
          new HarnessError(
            'harness_error',
            `The harness did not answer within ${initializeTimeoutMs / 1000} s.`,
          ),
        );
      }, initializeTimeoutMs);
    });
    try {
      const result = await Promise.race([channel.peer.request('initialize', initializeParams), tooLate]);
      return new AcpHarness(channel, readCapabilities(result), workspace);
    } catch (error) {
      channel.fail(error instanceof Error ? error : new Error(String(error)));
      if (error instanceof HarnessError) throw error;
      const why = error instanceof RpcFailure ? error.message.slice(0, 500) : String(error);
      throw new HarnessError('harness_error', `The harness refused to start: ${why}`);
    } finally {
      clearTimeout(timer);
    }
  };
}

function openChannel(sandbox: RunningSandbox, log: Log): Channel {
  const stderr = new StderrTail((note) => log.info('launcher', { note }));
  let junk = 0;
  let noiseChars = 0;
  let lineChars = 0;
  const breakOff = (message: string) => {
    lines.stop();
    peer.fail(new HarnessError('harness_error', message));
    // A harness that does not speak the protocol cannot be driven any more: whoever keeps the sandbox sees it end.
    void sandbox.kill();
  };
  const noise = () => {
    noiseChars += lineChars + noiseLineChars;
    if (noiseChars > maxNoiseChars) breakOff('The harness wrote too much outside of its turns.');
  };
  const peer = new RpcPeer({
    write: (line) => {
      sandbox.stdin.write(line);
      if (sandbox.stdin.writableLength > maxUnreadBytes) breakOff('The harness does not read its input.');
    },
    onNotification: (method, params) => {
      const isOfTurn =
        method === 'session/update' &&
        channel.onUpdate(`${params['sessionId']}`, params['update'], lineChars);
      if (!isOfTurn) noise();
    },
    onRequest: (method, params) => {
      // Counted although it may be of a turn: each one is answered, whatever it asks for.
      noise();
      if (method === '_berth.dev/record') return channel.onRecord(params);
      return method === 'session/request_permission' ? channel.onPermission(params) : null;
    },
    onJunk: () => {
      if (++junk === maxJunkLines)
        breakOff('The harness wrote something else than Agent Client Protocol to its output.');
    },
  });
  const lines = new LineReader({
    maxChars: maxLineChars,
    onLine: (line) => {
      lineChars = line.length;
      peer.line(line);
    },
    onTooLong: () => breakOff(`The harness wrote a line of more than ${maxLineChars} characters.`),
  });
  const channel: Channel = {
    peer,
    onUpdate: () => false,
    forgive: () => (noiseChars = 0),
    onPermission: async () => ({ outcome: { outcome: 'cancelled' } }),
    onRecord: async () => ({}),
    fail: (error) => {
      lines.stop();
      peer.fail(error);
    },
    end: () => sandbox.stdin.end(),
  };
  sandbox.stdout.on('data', (chunk: Buffer) => lines.push(chunk));
  sandbox.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
  // A broken pipe is followed by the exit, which tells more.
  for (const stream of [sandbox.stdin, sandbox.stdout, sandbox.stderr]) stream.on('error', () => undefined);
  void sandbox.exited.then((exit) => peer.fail(exitError(exit, stderr.notes())));
  sandbox.stdout.on('end', () => {
    setTimeout(() => breakOff('The harness closed its output.'), exitGraceMs).unref();
  });
  return channel;
}

function readCapabilities(result: Json): HarnessCapabilities {
  if (result['protocolVersion'] !== 1) {
    throw new HarnessError('harness_error', 'The harness does not speak version 1 of Agent Client Protocol.');
  }
  const capabilities = record(result['agentCapabilities']);
  return {
    history: record(record(capabilities['_meta'])['berth.dev'])['history'] === true,
    close: isRecord(record(capabilities['sessionCapabilities'])['close']),
  };
}

function record(value: unknown): Json {
  return isRecord(value) ? value : {};
}
