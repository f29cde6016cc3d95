import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { after, before, mock, test } from 'node:test';
import zlib from 'node:zlib';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { status as codes } from '@grpc/grpc-js';
import { limits } from '../../src/domain/limits.ts';
import { createGrpcListener, type GrpcListener } from '../../src/edges/a2a/grpc/listener.ts';
import type { Edge } from '../../src/edges/http/edge.ts';
import type { RateVerdict } from '../../src/services/api.ts';
import { edgeWorld, type EdgeWorld } from '../support/edge-world.ts';
import { grpcFrame, grpcStream } from '../support/grpc-stream.ts';
import { until } from '../support/until.ts';

let world: EdgeWorld;
let grpc: GrpcListener;
let port: number;
before(async () => {
  const addresses = { baseUrl: 'https://berth.example.com', appDomain: 'agents.example.com' };
  world = await edgeWorld({ app: { addresses } });
  const verdict = { allowed: true, quota: 1, windowSeconds: 1, remaining: 1, resetSeconds: 1 };
  const rateLimit = { take: () => verdict as RateVerdict };
  const services = Object.create(world.app.edge.services, { rateLimit: { value: rateLimit } });
  const edge = Object.create(world.app.edge, { services: { value: services } }) as Edge;
  grpc = createGrpcListener(edge, 100);
  port = await grpc.listen(0, '127.0.0.1');
  edge.addresses.a2aGrpcPort = port;
});
after(async () => {
  await grpc?.close(0);
  await world?.close();
});

const bytesInFlight = () => world.app.edge.flight.bytes;

function opened(): ClientHttp2Session {
  return connect(`http://127.0.0.1:${port}`).on('error', () => undefined);
}

function call(session: ClientHttp2Session, headers = {}): ClientHttp2Stream {
  const stream = grpcStream(session, '/lf.a2a.v1.A2AService/ListTasks', {
    ':authority': `${world.agent.id}.agents.example.com`,
    authorization: `Bearer ${world.keys.use}`,
    ...headers,
  });
  return stream.on('error', () => undefined).resume();
}

/** A message without anything in it but a field that no operation knows. */
const padded = (bytes: number): Buffer =>
  Buffer.from(
    new BinaryWriter()
      .uint32((1_000 << 3) | 2)
      .bytes(randomBytes(bytes))
      .finish(),
  );

async function endOf(stream: ClientHttp2Stream) {
  let told: IncomingHttpHeaders = {};
  const take = (headers: IncomingHttpHeaders) => 'grpc-status' in headers && (told = headers);
  stream.on('response', take).on('trailers', take);
  await once(stream, 'close');
  const details = Buffer.from(String(told['grpc-status-details-bin'] ?? ''), 'base64').toString('latin1');
  return {
    code: Number(told['grpc-status'] ?? NaN),
    message: decodeURI(String(told['grpc-message'])),
    hasRetryInfo: details.includes('google.rpc.RetryInfo'),
  };
}

/** Unpackings that are begun do not go on before `letGo`. */
function heldUnpackings() {
  const original = zlib.createGunzip.bind(zlib);
  let held: (() => void)[] | null = [];
  let begun = 0;
  const { mock: mocked } = mock.method(zlib, 'createGunzip', () => {
    begun += 1;
    const unzip = original();
    if (held === null) return unzip;
    const write: (packed: Buffer) => void = unzip.write.bind(unzip);
    const end: () => void = unzip.end.bind(unzip);
    unzip.write = (packed: Buffer) => {
      held!.push(() => {
        write(packed);
        end();
      });
      return true;
    };
    unzip.end = () => unzip;
    return unzip;
  });
  return {
    begun: () => begun,
    letGo() {
      for (const goOn of held ?? []) goOn();
      held = null;
    },
    restore: () => mocked.restore(),
  };
}

/** As many calls as there are places, which are being unpacked, and one that waits. Each counts as large. */
async function withOneThatWaits(
  work: (made: {
    session: ClientHttp2Session;
    frame: Buffer;
    held: ReturnType<typeof heldUnpackings>;
    begun: ClientHttp2Stream[];
    waiting: ClientHttp2Stream;
  }) => Promise<void>,
): Promise<void> {
  const held = heldUnpackings();
  const session = opened();
  try {
    const frame = grpcFrame(zlib.gzipSync(padded(100_000)), true);
    const send = () => {
      const stream = call(session, { 'grpc-encoding': 'gzip' });
      stream.end(frame);
      return stream;
    };
    const places = limits.a2aGrpcUnpackings;
    const begun = Array.from({ length: places }, send);
    await until('all places are taken', () => held.begun() === places);
    const waiting = send();
    await until('all has come', () => bytesInFlight() === (places + 1) * frame.length);
    await work({ session, frame, held, begun, waiting });
  } finally {
    held.letGo();
    held.restore();
    session.destroy();
  }
  await until('all bytes are given back', () => bytesInFlight() === 0);
}

test('the message of a client that left while it waited is not unpacked', async () => {
  await withOneThatWaits(async ({ session, frame, held, begun, waiting }) => {
    waiting.close();
    const others = begun.length;
    await until('it has left', () => bytesInFlight() === others * frame.length);
    const last = call(session, { 'grpc-encoding': 'gzip' });
    last.end(grpcFrame(zlib.gzipSync(padded(1)), true));
    const ends = [...begun, last].map(endOf);
    held.letGo();
    for (const { code, message: told } of await Promise.all(ends)) assert.equal(code, codes.OK, told);
    assert.equal(held.begun(), others + 1);
  });
});

test('a message that has come whole is never late: one that waits too long is told when to come again, and one that is being unpacked is answered', async () => {
  const live = new Map<unknown, () => void>();
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const setting = mock.method(globalThis, 'setTimeout', (run: () => void, ms?: number) => {
    const timer = set(run, ms);
    if (ms === 30_000 && new Error('whose').stack!.includes('/a2a/grpc/')) live.set(timer, run);
    return timer;
  });
  const clearing = mock.method(globalThis, 'clearTimeout', (timer: NodeJS.Timeout) => {
    live.delete(timer);
    clear(timer);
  });
  try {
    await withOneThatWaits(async ({ held, begun, waiting }) => {
      const waited = endOf(waiting);
      const ends = begun.map(endOf);
      // Thirty seconds have passed.
      for (const run of live.values()) run();
      const { code, message: told, hasRetryInfo } = await waited;
      assert.deepEqual([code, hasRetryInfo], [codes.UNAVAILABLE, true], told);
      held.letGo();
      for (const end of await Promise.all(ends)) assert.equal(end.code, codes.OK, end.message);
    });
    // A message that does not come whole is late.
    const session = opened();
    const slow = call(session);
    slow.write(grpcFrame(Buffer.alloc(100_000)).subarray(0, 99_000));
    await until('it has come', () => bytesInFlight() === 99_000);
    const end = endOf(slow);
    for (const run of live.values()) run();
    assert.equal((await end).code, codes.INVALID_ARGUMENT);
    session.destroy();
  } finally {
    setting.mock.restore();
    clearing.mock.restore();
  }
});

test('small messages that do not come whole are refused with when to come again beyond what one key may have, and are given back when their clients have gone', async () => {
  const bytes = 60_000;
  const part = grpcFrame(Buffer.alloc(bytes)).subarray(0, bytes);
  const most = Math.floor(limits.a2aGrpcSmallMessages.ofOrg / 2 / bytes);
  const sessions = Array.from({ length: Math.ceil(most / 100) + 1 }, opened);
  const ended: Promise<Awaited<ReturnType<typeof endOf>>>[] = [];
  try {
    for (const session of sessions)
      for (let at = 0; at < limits.a2aGrpcStreams; at += 1) {
        const stream = call(session);
        stream.write(part);
        ended.push(endOf(stream));
      }
    const { code, message: told, hasRetryInfo } = await Promise.race(ended);
    assert.deepEqual([code, hasRetryInfo], [codes.RESOURCE_EXHAUSTED, true], told);
    assert.match(told, /Too many small messages/);
  } finally {
    for (const session of sessions) session.destroy();
  }
  const answered = async (): Promise<boolean> => {
    const session = opened();
    const streams = Array.from({ length: 50 }, () => call(session));
    const ends = streams.map(endOf);
    for (const stream of streams) stream.end(grpcFrame(padded(60_000)));
    const all = await Promise.all(ends);
    session.destroy();
    return all.every(({ code }) => code === codes.OK);
  };
  await until('fifty of 60 KB at once are answered', answered);
});
