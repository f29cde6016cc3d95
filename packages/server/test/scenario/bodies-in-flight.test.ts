import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { deflateSync, gzipSync } from 'node:zlib';
import { SendMessageRequest } from '@a2a-js/sdk';
import { A2AService } from '@a2a-js/sdk/server/grpc';
import { status as codes } from '@grpc/grpc-js';
import { limits } from '../../src/domain/limits.ts';
import { grpcPort, grpcWire } from '../support/a2a-grpc.ts';
import { type A2aWorld, a2aWorld, message } from '../support/a2a-world.ts';
import { grpcFrame, grpcFrameHead, grpcStream } from '../support/grpc-stream.ts';
import { until } from '../support/until.ts';

let world: A2aWorld;
let port: number;
before(async () => {
  world = await a2aWorld({ env: { BERTH_A2A_GRPC_PORT: '0' } });
  port = grpcPort((await world.request('GET', '/.well-known/agent-card.json')).body);
});
after(() => world?.close());

async function bytesInFlight(): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${world.service.port}/metrics`);
  return Number(/^berth_request_body_bytes (\d+)$/m.exec(await response.text())![1]);
}
const allGivenBack = () => until('all bytes are given back', async () => (await bytesInFlight()) === 0);
const large = (bytes: number) =>
  message('echo', { parts: [{ text: 'echo' }, { data: { x: 'x'.repeat(bytes) } }] });

test('forty prompts of 1.5 MB that one organisation sends at once are all answered', async () => {
  const sent = Array.from({ length: 40 }, () => world.rpc('SendMessage', { message: large(1_500_000) }));
  for (const { result, error } of await Promise.all(sent))
    assert.equal(result?.task.status.state, 'TASK_STATE_COMPLETED', JSON.stringify(error));
  await allGivenBack();
});

test('a body of exactly as much as it may have is read, and one of a byte more is not', async () => {
  const body = '{"jsonrpc":"2.0","id":1,"method":"Nothing","params":{"x":"';
  const padded = (bytes: number) => `${body}${'x'.repeat(bytes - body.length - 3)}"}}`;
  const whole = await world.request('POST', '/a2a', { body: padded(limits.a2aBodyBytes) });
  assert.deepEqual([whole.status, whole.body.error.code], [200, -32601]);
  const over = await world.request('POST', '/a2a', { body: padded(limits.a2aBodyBytes + 1) });
  assert.equal(over.status, 413);
  await allGivenBack();
});

/** A call whose message is still to come. */
function messageStream(session: ClientHttp2Session, headers = {}): ClientHttp2Stream {
  const stream = grpcStream(session, '/lf.a2a.v1.A2AService/SendMessage', {
    ':authority': `${world.agent.id}.localhost`,
    authorization: `Bearer ${world.service.key}`,
    ...headers,
  });
  return stream.on('error', () => undefined).resume();
}

const zippedFrame = (bytes: Buffer, zip = gzipSync): Buffer => grpcFrame(zip(bytes), true);
const encoded = (x: string): Buffer =>
  A2AService.sendMessage.requestSerialize(
    SendMessageRequest.fromJSON({
      message: message('echo', { parts: [{ text: 'echo' }, { data: { x } }] }),
    }),
  );

/** With what a call ends: before it is answered in the headers, else behind them. */
async function endOf(stream: ClientHttp2Stream) {
  let told: IncomingHttpHeaders = {};
  const take = (headers: IncomingHttpHeaders) => 'grpc-status' in headers && (told = headers);
  stream.on('response', take).on('trailers', take);
  await once(stream, 'close');
  return {
    code: Number(told['grpc-status'] ?? NaN),
    message: decodeURI(String(told['grpc-message'])),
    detailsBin: String(told['grpc-status-details-bin']),
  };
}

test('many readers at once of a message with as much in it as may be get all of it, from its task, its conversation and its events', async () => {
  const x = 'x'.repeat(limits.partsChars - 200);
  const sent = await world.rpc('SendMessage', {
    message: message('echo', { parts: [{ text: 'echo' }, { data: { x } }] }),
  });
  const { id, contextId } = sent.result.task;
  const paths = [
    `/a2a/http/tasks/${id}`,
    `/v1/conversations/${contextId}/messages`,
    `/v1/conversations/${contextId}/events`,
    `/v1/runs/${id}/events?after=0`,
  ];
  const read = async (path: string): Promise<string> => {
    if (path.startsWith('/a2a')) return (await world.request('GET', path)).text;
    const headers = { authorization: `Bearer ${world.service.key}` };
    return (await fetch(`http://127.0.0.1:${world.service.port}${path}`, { headers })).text();
  };
  const all = await Promise.all([...paths, ...paths, ...paths].map(read));
  for (const text of all) {
    assert.ok(text.includes(x), text.slice(0, 300));
    JSON.parse(text);
  }
});

test('a message of gRPC counts while it comes, and no more when its client has gone, or it is answered', async () => {
  const session = connect(`http://127.0.0.1:${port}`);
  session.on('error', () => undefined);
  // One whose client goes, and one that says that it has ended amid its message.
  for (const end of ['gone', 'half'] as const) {
    const stream = messageStream(session);
    stream.write(Buffer.concat([grpcFrameHead(1_000_000), Buffer.alloc(200_000)]));
    await until('what has come counts', async () => (await bytesInFlight()) === 200_005);
    if (end === 'gone') stream.close();
    else stream.end();
    await allGivenBack();
  }
  session.close();
  await once(session, 'close');

  const wire = grpcWire(port);
  try {
    const asked = { agentId: world.agent.id, key: world.service.key };
    const request = SendMessageRequest.fromJSON({ message: large(1_500_000) });
    for (const method of ['SendMessage', 'SendStreamingMessage']) {
      const { code, details, messages } = await wire.call({ ...asked, method, request });
      assert.equal(code, codes.OK, details);
      assert.ok(messages.length > 0);
      await allGivenBack();
    }
    const broken = Buffer.alloc(500_000, 0xff);
    const { code } = await wire.call({ ...asked, method: 'SendMessage', request: broken });
    assert.equal(code, codes.INVALID_ARGUMENT);
    await allGivenBack();
  } finally {
    wire.close();
  }
});

test('beyond the bound of its organisation a large message of gRPC is refused with when to come again, and a small one is answered', async () => {
  const session = connect(`http://127.0.0.1:${port}`);
  session.on('error', () => undefined);
  const count = Math.floor(limits.bodiesInFlight.ofOrg / limits.a2aBodyBytes);
  for (let at = 0; at < count; at += 1) {
    const stream = messageStream(session);
    stream.write(
      Buffer.concat([grpcFrameHead(limits.a2aBodyBytes), Buffer.alloc(limits.a2aBodyBytes - 1_000)]),
    );
  }
  await until('they have come', async () => (await bytesInFlight()) === count * (limits.a2aBodyBytes - 995));
  const wire = grpcWire(port);
  try {
    const send = (bytes: number) =>
      wire.call({
        agentId: world.agent.id,
        key: world.service.key,
        method: 'SendMessage',
        request: SendMessageRequest.fromJSON({ message: large(bytes) }),
      });
    const refused = await send(3_000_000);
    assert.deepEqual([refused.code, refused.messages], [codes.RESOURCE_EXHAUSTED, []]);
    assert.match(refused.details, /Too many large requests of this organisation/);
    assert.match(String(refused.trailing.get('grpc-status-details-bin')[0]), /google\.rpc\.RetryInfo/);
    assert.equal((await send(100)).code, codes.OK);
    // What comes compressed counts as what it is.
    const zipped = gzipSync(Buffer.alloc(3_000_000));
    const stream = messageStream(session, { 'grpc-encoding': 'gzip' });
    stream.end(grpcFrame(zipped, true));
    const zippedEnd = await endOf(stream);
    assert.equal(zippedEnd.code, codes.RESOURCE_EXHAUSTED);
    assert.match(zippedEnd.message, /Too many large requests of this organisation/);
    assert.match(String(Buffer.from(zippedEnd.detailsBin, 'base64')), /google\.rpc\.RetryInfo/);
    // What is small is answered, although more could be made of so many bytes than there is room for.
    const unclear = messageStream(session, { 'grpc-encoding': 'gzip' });
    unclear.end(zippedFrame(encoded(randomBytes(10_000).toString('hex'))));
    assert.equal((await endOf(unclear)).code, codes.OK);
    const little = messageStream(session, { 'grpc-encoding': 'gzip' });
    little.end(zippedFrame(encoded('x')));
    assert.equal((await endOf(little)).code, codes.OK);
  } finally {
    wire.close();
    session.destroy();
  }
  await allGivenBack();
});

async function withSession(work: (session: ClientHttp2Session) => Promise<void>): Promise<void> {
  const session = connect(`http://127.0.0.1:${port}`);
  session.on('error', () => undefined);
  try {
    await work(session);
  } finally {
    session.destroy();
  }
  await allGivenBack();
}

test('twenty compressed messages of 1 MB at once are all answered, in both encodings, however well they compress', async () => {
  await withSession(async (session) => {
    const messages = ['x'.repeat(1_000_000), randomBytes(500_000).toString('hex')].map(encoded);
    for (const bytes of messages)
      for (const [encoding, zip] of [
        ['gzip', gzipSync],
        ['deflate', deflateSync],
      ] as const) {
        const frame = zippedFrame(bytes, zip);
        const ends = Array.from({ length: 20 }, () => {
          const stream = messageStream(session, { 'grpc-encoding': encoding });
          stream.end(frame);
          return endOf(stream);
        });
        for (const { code, message: told } of await Promise.all(ends)) assert.equal(code, codes.OK, told);
      }
  });
});

test('a hundred compressed messages of 60 KB that one organisation sends at once are all answered', async () => {
  await withSession(async (session) => {
    const frame = zippedFrame(encoded(randomBytes(30_000).toString('hex')));
    const ends = Array.from({ length: 100 }, () => {
      const stream = messageStream(session, { 'grpc-encoding': 'gzip' });
      stream.end(frame);
      return endOf(stream);
    });
    for (const { code, message: told } of await Promise.all(ends)) assert.equal(code, codes.OK, told);
  });
});

test('of a compressed message no more is made than one may have, and of two in a call not the second', async () => {
  await withSession(async (session) => {
    const large = messageStream(session, { 'grpc-encoding': 'gzip' });
    large.end(zippedFrame(Buffer.alloc(limits.a2aBodyBytes + 1)));
    const { code, message: told } = await endOf(large);
    assert.equal(code, codes.RESOURCE_EXHAUSTED);
    assert.match(told, /larger than/);
    const two = messageStream(session, { 'grpc-encoding': 'gzip' });
    const broken = Buffer.concat([grpcFrameHead(20, true), Buffer.alloc(20, 0xff)]);
    // Nobody finds out that it is broken.
    two.end(Buffer.concat([zippedFrame(encoded('x')), broken]));
    assert.equal((await endOf(two)).code, codes.UNIMPLEMENTED);
  });
});

test('the stream of a call that has ended is closed, although its client says nothing of an end, so that nothing of its message is kept', async () => {
  await withSession(async (session) => {
    const late = messageStream(session, { 'grpc-timeout': '50m' });
    late.write(Buffer.concat([grpcFrameHead(1_000_000), Buffer.alloc(200_000)]));
    assert.equal((await endOf(late)).code, codes.DEADLINE_EXCEEDED);
    const whole = messageStream(session, { 'grpc-timeout': '2S', 'grpc-encoding': 'gzip' });
    whole.write(zippedFrame(encoded('x'.repeat(1_000_000))));
    assert.equal((await endOf(whole)).code, codes.DEADLINE_EXCEEDED);
    const refused = messageStream(session, { authorization: 'Bearer nobody' });
    refused.write(grpcFrameHead(1_000_000));
    assert.equal((await endOf(refused)).code, codes.UNAUTHENTICATED);
  });
});
