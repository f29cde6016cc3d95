import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { Pace } from '../../src/domain/bucket.ts';
import type { HarnessConnection } from '../../src/domain/ports/harness.ts';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { commit, markDeployed } from './harness-fixture.ts';
import { launchEnv, makePlaces, startLinked } from './local-harness.ts';
import type { Places } from './local-harness.ts';

/** An agent of a few lines, as somebody could put it into a repository. `lines` answers one message. */
export function agentSource(answer: string): string {
  return `
    import { createInterface } from 'node:readline';
    const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
    const update = (sessionId, update) => say({ method: 'session/update', params: { sessionId, update } });
    const waiting = new Map();
    const ask = (method, params) => new Promise((resolve) => {
      const id = 'ask-' + waiting.size; waiting.set(id, resolve); say({ id, method, params });
    });
    let sessions = 0;
    createInterface({ input: process.stdin }).on('line', async (line) => {
      const { id, method, params, result, error } = JSON.parse(line);
      if (method === undefined) return waiting.get(id)?.(result ?? error);
      if (method === 'initialize') return say({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
      if (method === 'session/new') return say({ id, result: { sessionId: 'session-' + ++sessions } });
      const text = params.prompt?.map((block) => block.text).join('|');
      ${answer}
    });`;
}

export async function startForeign(
  context: TestContext,
  source: string,
  options: { command?: string[]; env?: Record<string, string>; pace?: Pace } = {},
): Promise<{ connection: HarnessConnection; sandbox: RunningSandbox; exited: Promise<unknown> }> {
  const { places, env } = await foreignPlaces(context, source, options);
  const { sandbox, connection } = await startLinked(
    context,
    places,
    env,
    options.pace && { pace: options.pace },
  );
  return { connection, sandbox, exited: sandbox.exited };
}

/** What is needed to start it. */
export async function foreignPlaces(
  context: TestContext,
  source: string,
  options: { command?: string[]; env?: Record<string, string> } = {},
): Promise<{ places: Places; env: Record<string, string> }> {
  const places = await makePlaces();
  context.after(places.remove);
  await markDeployed(places);
  await writeFile(join(places.workspace, 'agent.mjs'), source);
  const command = JSON.stringify(options.command ?? ['node', 'agent.mjs']);
  const env = launchEnv('anthropic', commit, { BERTH_HARNESS_COMMAND: command, ...options.env });
  return { places, env };
}

export const endTurn = `say({ id, result: { stopReason: 'end_turn' } });`;
