import { GatewayClient } from '../../packages/harness/src/http.ts';
import { Model } from '../../packages/harness/src/model.ts';
import { anthropicWire } from '../../packages/harness/src/wire-anthropic.ts';
import { messageOf } from './script.ts';
import type { Script } from './script.ts';

/**
 * The floor: the harness's own wire client in a plain process asks the scripted model, with nothing in between and
 * nothing kept. What it costs is what no service can go below.
 */

export interface FloorRequest {
  script: Script;
  messages: number;
  concurrency: number;
}

export interface FloorReply {
  cpuMsPerMessage: number;
  messagesPerSecond: number;
  /** One entry a message. */
  totalMs: number[];
  firstMs: number[];
}

const model = new Model({
  gateway: new GatewayClient(process.argv[2]!, 1_000),
  wire: anthropicWire,
  provider: 'anthropic',
  model: 'bench',
  token: 'none',
  retry: { attempts: 1, baseMs: 0, maxMs: 0, unreachable: { firstMs: 0, laterMs: 0 }, shutMs: 0 },
  host: { connections: 1, back: async () => undefined, wasAway: async () => false },
});

async function one(script: Script, reply: FloorReply): Promise<void> {
  const startMs = performance.now();
  let firstMs: number | null = null;
  const seen = () => (firstMs ??= performance.now() - startMs);
  await model.call({
    system: 'You are the floor.',
    tools: '',
    encoded: [anthropicWire.encode({ role: 'user', text: messageOf(script) })],
    sessionId: 'floor',
    signal: new AbortController().signal,
    sink: { text: seen, thought: seen },
  });
  reply.firstMs.push(firstMs ?? Number.NaN);
  reply.totalMs.push(performance.now() - startMs);
}

async function run(request: FloorRequest): Promise<FloorReply> {
  const reply: FloorReply = { cpuMsPerMessage: 0, messagesPerSecond: 0, totalMs: [], firstMs: [] };
  const before = process.cpuUsage();
  const startMs = performance.now();
  let left = request.messages;
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      await one(request.script, reply);
    }
  };
  await Promise.all(Array.from({ length: request.concurrency }, worker));
  const used = process.cpuUsage(before);
  reply.cpuMsPerMessage = (used.user + used.system) / 1000 / request.messages;
  reply.messagesPerSecond = request.messages / ((performance.now() - startMs) / 1000);
  return reply;
}

process.on('message', (request: FloorRequest) => {
  void run(request).then((reply) => process.send!(reply));
});
process.once('disconnect', () => process.exit(0));
