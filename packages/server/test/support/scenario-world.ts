import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readConfig } from '../../src/config.ts';
import type { Binding, Scope } from '../../src/domain/nouns.ts';
import { newId } from '../../src/domain/ids.ts';
import { mintKey } from '../../src/services/api-keys.ts';
import { createApiKeyStore } from '../../src/store/api-keys.ts';
import { openDatabase } from '../../src/store/database.ts';
import type { Database } from '../../src/store/database.ts';
import { readConnection } from '../../src/store/embedded/server.ts';
import { createOrgStore } from '../../src/store/orgs.ts';
import { checkAnswer } from './contract.ts';
import { startScriptedModel } from './scripted-model.ts';
import type { Script, ScriptedModel, ScriptedRequest } from './scripted-model.ts';
import type { Api, Reply, Service } from './service.ts';
import { startService } from './service.ts';

export interface World {
  service: Service;
  model: ScriptedModel;
  /** The key with which the service calls the model: it may be nowhere but there. */
  modelKey: string;
  db: Database;
  orgId: string;
  keys: Record<'owner' | 'orgUse' | 'agentEdit' | 'agentUse' | 'otherAgent' | 'foreign', string>;
  /** The organisation's agent that most tests speak to, another one of it, and one of another organisation. */
  agentId: string;
  otherAgentId: string;
  foreignAgentId: string;
  /** A request with `keys.owner` or another key, its answer checked against openapi.json and kept in `seen`. */
  call: Api;
  as(key: string): Api;
  /** Sends a message that the scripted model answers; with the whole answer. */
  send(content: string, more?: Record<string, unknown>, headers?: Record<string, string>): Promise<Reply>;
  /** A key of the organisation (or another one), made as the host would. */
  mint(input: Partial<KeyInput>): Promise<string>;
  /** Every answer so far, head and body as text, with the request that it answers. */
  seen: { request: string; answer: string }[];
  /** Lets requests whose text begins with `hold:<name>` go on. */
  release(name: string): void;
  end(): Promise<void>;
}

interface KeyInput {
  orgId: string;
  name: string;
  scope: Scope;
  binding: Binding;
  agentId: string | null;
  expiresAt: Date;
}

/** The last message of the user, as the model gets it. */
export function questionOf(request: ScriptedRequest): string {
  const messages = request.body?.messages as { role: string; content: unknown }[] | undefined;
  const content = messages?.findLast((message) => message.role === 'user')?.content ?? '';
  if (typeof content === 'string') return content;
  return (content as { text?: string }[]).map((part) => part.text ?? '').join('');
}

/**
 * The composed service with a scripted model, two organisations and a key of each kind. `count: N gapMs` makes the
 * model count to N; `hold: <name>` makes it wait for `release(name)`; any other text is repeated in capitals.
 */
export async function startWorld(env: Record<string, string> = {}): Promise<World> {
  const gates = new Map<string, { promise: Promise<void>; open: () => void }>();
  const gate = (name: string) => {
    const found = gates.get(name);
    if (found) return found;
    let open = (): void => {};
    const made = { promise: new Promise<void>((resolve) => (open = resolve)), open: () => open() };
    gates.set(name, made);
    return made;
  };
  const script: Script = async (request) => {
    const question = questionOf(request);
    const count = /^count: (\d+) (\d+)/.exec(question);
    if (count) {
      const text = Array.from({ length: Number(count[1]) }, (_, index) => `${index + 1} `);
      return { text, gapMs: Number(count[2]) };
    }
    const hold = /^hold: (\S+)/.exec(question);
    if (hold) await gate(hold[1]!).promise;
    return { text: question.toUpperCase().match(/\S+\s*/g) ?? [] };
  };
  const model = await startScriptedModel(script);
  const modelKey = `sk-${randomBytes(24).toString('hex')}`;
  const dir = mkdtempSync('/tmp/berth-w-');
  const providers = join(dir, 'providers.json');
  const entry = {
    wire: 'openai-chat',
    baseUrl: model.openaiUrl,
    apiKeyVariable: 'SCRIPTED_KEY',
    models: ['one'],
  };
  writeFileSync(providers, JSON.stringify({ scripted: entry }));
  const started = await startService({
    env: {
      BERTH_MODEL_PROVIDERS: providers,
      SCRIPTED_KEY: modelKey,
      BERTH_DEFAULT_MODEL: 'scripted/one',
      BERTH_RATE_LIMIT: '100000/60',
      ...env,
    },
  }).catch(async (error: unknown) => {
    await model.close();
    throw error;
  });
  const db = openServiceDatabase(started);
  const end = async (): Promise<void> => {
    for (const { open } of gates.values()) open();
    await db.close();
    await started.end();
    await model.close();
    rmSync(dir, { recursive: true, force: true });
  };
  try {
    return { ...(await furnish(started, db)), model, modelKey, release: (name) => gate(name).open(), end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** A connection to the embedded PostgreSQL of a service that runs; the caller closes it. */
export function openServiceDatabase(service: Service): Database {
  const { paths } = readConfig({ BERTH_DATA_DIR: service.dataDir });
  const connection = readConnection({ home: paths.postgres, socketDir: join(paths.run, 'pg') });
  return openDatabase({ connection, pool: 2 });
}

async function furnish(service: Service, db: Database) {
  const seen: World['seen'] = [];
  const as =
    (key: string): Api =>
    async (method, path, body, headers) => {
      const reply = await service.as(key)(method, path, body, headers);
      const head = [...reply.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
      seen.push({ request: `${method} ${path}`, answer: `${reply.status}\n${head}\n\n${reply.text}` });
      checkAnswer(method, path, reply);
      return reply;
    };
  const owner = as(service.key);
  const keyStore = createApiKeyStore(db);
  const orgs = createOrgStore(db);
  const orgId = (await orgs.first())!.id;
  const foreignOrgId = newId();
  await orgs.insert({ id: foreignOrgId, name: 'Foreign' });
  const mint = async (input: Partial<KeyInput>): Promise<string> => {
    const whole = {
      orgId,
      name: 'test',
      scope: 'use',
      binding: 'org-bound',
      agentId: null,
      ...input,
    } as const;
    return (await mintKey(keyStore, whole)).value;
  };
  const create = async (api: Api, name: string): Promise<string> => {
    const made = await api('POST', '/v1/agents', { name });
    assert.equal(made.status, 201, made.text);
    return made.body.agent.id as string;
  };
  const foreign = await mint({ orgId: foreignOrgId, scope: 'edit' });
  const agentId = await create(owner, 'Speaker');
  const otherAgentId = await create(owner, 'Other');
  const foreignAgentId = await create(as(foreign), 'Foreign');
  const bound = (scope: Scope, id: string) => mint({ scope, binding: 'agent-bound', agentId: id });
  return {
    service,
    db,
    orgId,
    seen,
    as,
    call: owner,
    mint,
    agentId,
    otherAgentId,
    foreignAgentId,
    keys: {
      owner: service.key,
      orgUse: await mint({ scope: 'use' }),
      agentEdit: await bound('edit', agentId),
      agentUse: await bound('use', agentId),
      otherAgent: await bound('edit', otherAgentId),
      foreign,
    },
    send: (content: string, more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
      owner('POST', '/api/v1/chat/send', { agentId, content, ...more }, headers),
  };
}

let shared: Promise<World> | null = null;

/** One world for all files of a test process that leave it as they found it; `endSharedWorld` ends it. */
export function sharedWorld(): Promise<World> {
  shared ??= startWorld();
  return shared;
}

export async function endSharedWorld(): Promise<void> {
  const world = shared;
  shared = null;
  await (await world)?.end();
}
