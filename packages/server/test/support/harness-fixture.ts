import { noAnswer } from '../../src/domain/questions.ts';
import type { Question } from '../../src/domain/questions.ts';
import type { TestContext } from 'node:test';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  HarnessConnection,
  HarnessLink,
  HarnessUpdate,
  TurnRequest,
  TurnResult,
} from '../../src/domain/ports/harness.ts';
import type { RunningSandbox } from '../../src/domain/ports/sandbox.ts';
import { launchEnv, makePlaces, relayGateway, startLinked } from './local-harness.ts';
import type { Places } from './local-harness.ts';
import { startScriptedModel } from './scripted-model.ts';
import type { Script, ScriptedModel } from './scripted-model.ts';

export type TestedWire = 'anthropic' | 'openai-chat';
export const commit = 'a'.repeat(40);

export interface HarnessFixture {
  places: Places;
  model: ScriptedModel;
  sandbox: RunningSandbox;
  link: HarnessLink;
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
  const linked = await startLinked(context, places, launchEnv(wire, commit, env));
  return { places, model, ...linked };
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
  questions: Question[];
}

export async function runTurn(
  connection: HarnessConnection,
  content: string,
  options: Partial<Omit<TurnRequest, 'history'>> & {
    history?: Awaited<ReturnType<TurnRequest['history']>>;
  } = {},
): Promise<TurnRecord> {
  const { history = [], onUpdate, onQuestion, onRecord, ...more } = options;
  const updates: HarnessUpdate[] = [];
  const questions: Question[] = [];
  const result = await connection.prompt({
    runId: 'run-1',
    attempt: 1,
    conversationId: 'conversation-1',
    content,
    source: 'api',
    extras: null,
    resume: [],
    signal: new AbortController().signal,
    ...more,
    history: async () => history,
    onUpdate: (update) => {
      updates.push(update);
      onUpdate?.(update);
    },
    onRecord: onRecord ?? (async () => {}),
    onTold: () => undefined,
    onAcknowledge: async () => {},
    ended: Promise.resolve(),
    onQuestion: async (question, recorded) => {
      questions.push(question);
      recorded();
      return onQuestion ? onQuestion(question, () => undefined) : noAnswer(question.kind);
    },
  });
  const text = updates.map((update) => (update.kind === 'text' ? update.text : '')).join('');
  const tools = updates.filter((update) => update.kind === 'tool');
  return { result, updates, text, tools, questions };
}
