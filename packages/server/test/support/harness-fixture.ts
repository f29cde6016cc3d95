import type { TestContext } from 'node:test';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  HarnessConnection,
  HarnessUpdate,
  PermissionRequest,
  TurnRequest,
  TurnResult,
} from '../../src/domain/ports/harness.ts';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { harnessConnector } from '../../src/harness/connect.ts';
import { launchEnv, makePlaces, relayGateway, startLauncher } from './local-harness.ts';
import { silentLog } from './log.ts';
import type { Places } from './local-harness.ts';
import { startScriptedModel } from './scripted-model.ts';
import type { Script, ScriptedModel } from './scripted-model.ts';

export type TestedWire = 'anthropic' | 'openai-chat';
export const commit = 'a'.repeat(40);

export interface HarnessFixture {
  places: Places;
  model: ScriptedModel;
  sandbox: RunningSandbox;
  connection: HarnessConnection;
}

/** A launcher with its harness, connected, with a scripted model behind it. Everything ends with the test. */
export async function startHarness(
  context: TestContext,
  options: {
    wire?: TestedWire;
    script: Script;
    env?: Record<string, string>;
    files?: Record<string, string>;
  },
): Promise<HarnessFixture> {
  const { wire = 'anthropic', script, env = {}, files = {} } = options;
  const places = await makePlaces();
  context.after(places.remove);
  for (const [name, text] of Object.entries(files)) await writeFile(join(places.workspace, name), text);
  await markDeployed(places);
  const model = await startScriptedModel(script);
  context.after(model.close);
  const gateway = await relayGateway(places.gatewaySocket, model.url);
  context.after(gateway.close);
  const sandbox = await startLauncher(places, launchEnv(wire, commit, env));
  context.after(async () => void (await sandbox.kill()));
  const connect = harnessConnector({ log: silentLog, workspace: places.workspace });
  const connection = await connect(sandbox, { initializeTimeoutMs: 20_000 });
  return { places, model, sandbox, connection };
}

/** The workspace counts as deployed, so that no archive is needed. */
export async function markDeployed(places: Places): Promise<void> {
  await mkdir(join(places.home, '.berth'), { recursive: true });
  await writeFile(
    join(places.home, '.berth', 'manifest.json'),
    `{"commit":"${commit}","pending":null,"files":{}}`,
  );
}

export interface TurnRecord {
  result: TurnResult;
  updates: HarnessUpdate[];
  /** All text, joined. */
  text: string;
  tools: Extract<HarnessUpdate, { kind: 'tool' }>[];
  permissions: PermissionRequest[];
}

export async function runTurn(
  connection: HarnessConnection,
  content: string,
  options: Partial<Omit<TurnRequest, 'history'>> & {
    history?: Awaited<ReturnType<TurnRequest['history']>>;
  } = {},
): Promise<TurnRecord> {
  const { history = [], onUpdate, onPermission, onRecord, ...more } = options;
  const updates: HarnessUpdate[] = [];
  const permissions: PermissionRequest[] = [];
  const result = await connection.prompt({
    conversationId: 'conversation-1',
    content,
    resume: [],
    signal: new AbortController().signal,
    ...more,
    history: async () => history,
    onUpdate: (update) => {
      updates.push(update);
      onUpdate?.(update);
    },
    onRecord: onRecord ?? (async () => {}),
    onPermission: async (request) => {
      permissions.push(request);
      return onPermission ? onPermission(request) : null;
    },
  });
  const text = updates.map((update) => (update.kind === 'text' ? update.text : '')).join('');
  const tools = updates.filter((update) => update.kind === 'tool');
  return { result, updates, text, tools, permissions };
}
