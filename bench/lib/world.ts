import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startService } from '../../packages/server/test/support/service.ts';
import type { Service } from '../../packages/server/test/support/service.ts';
import { Client } from './client.ts';
import type { FloorReply, FloorRequest } from './floor-process.ts';
import { startModel } from './model.ts';
import type { ScriptedModel } from './model.ts';
import { answerOf, messageOf } from './script.ts';

/** What every measurement works with: the whole service, the scripted model, the floor, a client. */
export interface World {
  service: Service;
  client: Client;
  agentId: string;
  floor(request: FloorRequest): Promise<FloorReply>;
  /** A new agent of the same model; its sandbox is cold. */
  newAgent(name: string): Promise<string>;
  /** Sends messages until the agent's sandbox is warm and the code on the way is compiled. */
  warmUp(agentId: string, messages: number): Promise<void>;
  end(): Promise<void>;
}

const MODEL = 'anthropic/bench';
const WARM = { tokens: 20, firstMs: 0, gapMs: 0 };

export async function openWorld(env: Record<string, string> = {}): Promise<World> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-bench-'));
  let model: ScriptedModel | null = null;
  let service: Service | null = null;
  let client: Client | null = null;
  const end = async (): Promise<void> => {
    client?.close();
    await service?.end();
    await model?.end();
    rmSync(dir, { recursive: true, force: true });
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void end().finally(() => process.exit(1)));
  }
  try {
    model = await startModel(dir);
    service = await startService({
      isOnDisk: true,
      env: {
        ANTHROPIC_API_KEY: 'bench',
        ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.port}`,
        BERTH_DEFAULT_MODEL: MODEL,
        BERTH_RATE_LIMIT: '100000000/60',
        BERTH_LOG_LEVEL: 'warn',
        // As users have it; the tests have less.
        BERTH_DISK_MODE: 'auto',
        BERTH_DATABASE_POOL: '8',
        ...env,
      },
    });
    client = new Client(service.url, service.key);
    const world: World = worldOf(service, client, model.floor, end);
    world.agentId = await world.newAgent('bench');
    return world;
  } catch (error) {
    await end();
    throw error;
  }
}

function worldOf(service: Service, client: Client, floor: World['floor'], end: () => Promise<void>): World {
  const expected = answerOf(WARM.tokens);
  return {
    service,
    client,
    agentId: '',
    floor,
    async newAgent(name) {
      const { agent } = await client.json<{ agent: { id: string } }>('POST', '/v1/agents', {
        name,
        model: MODEL,
      });
      return agent.id;
    },
    async warmUp(agentId, messages) {
      let conversationId: string | null = null;
      for (let sent = 0; sent < messages; sent += 1) {
        const answer = await client.send(agentId, conversationId, messageOf(WARM));
        if (answer.content.trim() !== expected.trim()) throw new Error(`A wrong answer: ${answer.content}`);
        conversationId = sent % 20 === 19 ? null : answer.conversationId;
      }
    },
    end,
  };
}
