import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  Client,
  StreamableHTTPClientTransport,
  type VersionNegotiationMode,
} from '@modelcontextprotocol/client';
import { agentProxy } from '../support/agent-proxy.ts';
import { hostFetch } from '../support/host-fetch.ts';
import { endSharedWorld, sharedWorld, type World } from '../support/scenario-world.ts';

let world: World;
before(async () => {
  world = await sharedWorld();
});
after(endSharedWorld);

const url = (agentId = world.agentId) => new URL(`http://${agentId}.localhost:${world.service.port}/mcp`);

interface Told {
  runId: string;
  conversationId: string;
  status: string;
  message: string | null;
  error: { code: string } | null;
}

async function connected(
  mode: VersionNegotiationMode,
  work: (
    call: (
      name: string,
      input: object,
    ) => Promise<{ told: Told; text: string; isError: boolean; structured: unknown }>,
    client: Client,
  ) => Promise<void>,
  key = world.keys.agentUse,
): Promise<void> {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(url(), {
    fetch: hostFetch(world.service.port),
    requestInit: { headers: { authorization: `Bearer ${key}` } },
  });
  await client.connect(transport);
  try {
    await work(async (name, input) => {
      const result = await client.callTool({ name, arguments: { ...input } });
      const [content] = result.content as { text: string }[];
      const { structuredContent: structured } = result;
      return {
        told: structured as unknown as Told,
        structured,
        text: content!.text,
        isError: result.isError === true,
      };
    }, client);
  } finally {
    await client.close();
  }
}

for (const [name, mode] of [
  ['2026-07-28', { pin: '2026-07-28' }],
  ['2025-11-25', 'legacy'],
] as const) {
  test(`another agent speaks to this one by the tools of ${name}`, async () => {
    await connected(mode, async (call, client) => {
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map((tool) => tool.name),
        ['send_message', 'get_run', 'list_conversations'],
      );
      // Other files of this process give the agent other names.
      const { name: agentName } = (await world.call('GET', `/v1/agents/${world.agentId}`)).body.agent;
      assert.equal(client.getServerVersion()?.name, agentName);
      const first = await call('send_message', { content: 'hello' });
      assert.deepEqual([first.text, first.isError, first.told.status], ['HELLO', false, 'completed']);
      const { conversationId } = first.told;
      const second = await call('send_message', { content: 'again', conversationId });
      assert.deepEqual([second.told.message, second.told.conversationId], ['AGAIN', conversationId]);
      const run = await world.call('GET', `/v1/runs/${second.told.runId}`);
      assert.equal(run.body.run.conversationId, conversationId, 'the same run by REST');
      const list = await call('list_conversations', { limit: 1 });
      assert.deepEqual(
        (list.structured as { conversations: { id: string }[] }).conversations.map(({ id }) => id),
        [conversationId],
      );
    });
  });
}

test('a run that takes longer than a call may wait is asked for again', async () => {
  await connected('auto', async (call) => {
    const begun = await call('send_message', { content: 'hold: mcp', waitSeconds: 0 });
    assert.match(begun.told.status, /^(queued|running)$/);
    assert.match(begun.text, new RegExp(`get_run ${begun.told.runId}`));
    world.release('mcp');
    const ended = await call('get_run', { runId: begun.told.runId, waitSeconds: 30 });
    assert.deepEqual([ended.told.status, ended.text], ['completed', 'HOLD: MCP']);
  });
});

test('what goes wrong in a tool is its result, and says nothing of other agents', async () => {
  const other = await world.call('POST', '/api/v1/chat/send', { agentId: world.otherAgentId, content: 'x' });
  // The owner's key may see both agents; on this host there is only one.
  await connected(
    'auto',
    async (call) => {
      for (const input of [
        { runId: other.body.runId as string },
        { runId: other.body.runId.replace(/.$/, (end: string) => (end === '0' ? '1' : '0')) as string },
      ]) {
        const told = await call('get_run', { ...input, waitSeconds: 0 });
        assert.deepEqual([told.isError, told.text], [true, 'Not found. (not_found)']);
      }
      const foreign = await call('send_message', { content: 'x', conversationId: other.body.conversationId });
      assert.deepEqual([foreign.isError, foreign.text], [true, 'Not found. (not_found)']);
      const listed = await call('list_conversations', { limit: 100 });
      assert.ok(!listed.text.includes(other.body.conversationId as string));
    },
    world.keys.owner,
  );
});

test('a request without a good key, of a foreign page, or that is no JSON is refused in the form of JSON-RPC', async () => {
  const at = hostFetch(world.service.port);
  const post = async (headers: Record<string, string>, body = '{}') => {
    const reply = await at(url(), {
      method: 'POST',
      body,
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${world.keys.agentUse}`,
        ...headers,
      },
    });
    const told = (await reply.json()) as { jsonrpc: string; id: unknown; error: { code: number } };
    assert.deepEqual([told.jsonrpc, told.id], ['2.0', body.includes('"mine"') ? 'mine' : null]);
    return [reply.status, told.error.code];
  };
  const call = '{"jsonrpc":"2.0","id":"mine","method":"tools/list","params":{"cursor":"\\u0000"}}';
  assert.deepEqual(await post({}, call), [400, -32_600]);
  assert.deepEqual(await post({ authorization: 'Bearer nothing' }), [401, -32_000]);
  assert.deepEqual(await post({ authorization: `Bearer ${world.keys.foreign}` }), [404, -32_000]);
  assert.deepEqual(await post({ origin: 'https://evil.example' }), [403, -32_000]);
  assert.deepEqual(await post({}, '{'), [400, -32_700]);
  assert.deepEqual(await post({ 'content-type': 'text/plain' }), [415, -32_000]);
  assert.deepEqual(await post({}, `"${'x'.repeat(1_100_000)}"`), [413, -32_000]);
});

test('params of another shape are told as that, with what is wrong', async () => {
  const at = hostFetch(world.service.port);
  const client = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  };
  for (const [method, params, path] of [
    ['initialize', { ...client, protocolVersion: 0 }, 'params.protocolVersion'],
    ['initialize', { ...client, clientInfo: [] }, 'params.clientInfo'],
    ['initialize', { ...client, capabilities: 1 }, 'params.capabilities'],
    ['initialize', undefined, 'params'],
    ['ping', { _meta: 1 }, 'params._meta'],
    ['tools/list', { cursor: 1 }, 'params.cursor'],
    ['tools/call', { name: {}, arguments: {} }, 'params.name'],
    ['tools/call', { name: 'send_message', arguments: 1 }, 'params.arguments'],
    ['prompts/list', { cursor: {} }, 'params.cursor'],
    ['prompts/get', { name: 1 }, 'params.name'],
    ['resources/list', { cursor: [] }, 'params.cursor'],
    ['resources/templates/list', { cursor: true }, 'params.cursor'],
    ['resources/read', { uri: { toString: 1 } }, 'params.uri'],
  ] as const) {
    const reply = await at(url(), {
      method: 'POST',
      body: JSON.stringify({ jsonrpc: '2.0', id: 'mine', method, params }),
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${world.keys.agentUse}`,
      },
    });
    const { id, error } = (await reply.json()) as {
      id: unknown;
      error: { code: number; message: string; data: { details: { path: string }[] } };
    };
    assert.deepEqual([reply.status, id, error.code], [200, 'mine', -32_602], `${method} ${path}`);
    assert.ok(error.message.startsWith(`${path}: `), error.message);
    assert.deepEqual(
      error.data.details.map((detail) => detail.path),
      [path],
    );
  }
});

/** Why scenarios of the kit fail that want what an agent rightly has not (docs/mcp.md has the same table). */
const tool = 'calls a tool of the name of the kit, with its fixed answer or schema';
const prompt = 'gets a prompt of a fixed name';
const resource = 'reads a test:// resource of a fixed name';
const session = 'wants a session, in which the server speaks by itself, and a tool of the kit that does';
const asksBack = 'calls tools and prompts of the kit that ask their client back';
const always: Record<string, string> = {
  'tools-call-simple-text': tool,
  'tools-call-image': tool,
  'tools-call-audio': tool,
  'tools-call-embedded-resource': tool,
  'tools-call-mixed-content': tool,
  'tools-call-error': tool,
  'tools-call-with-progress': tool,
  'json-schema-2020-12': tool,
  'completion-complete': 'completes the argument of a prompt of a fixed name',
  'resources-read-text': resource,
  'resources-read-binary': resource,
  'resources-templates-read': resource,
  'prompts-get-simple': prompt,
  'prompts-get-with-args': prompt,
  'prompts-get-embedded-resource': prompt,
  'prompts-get-with-image': prompt,
};
const expectedFailures: Record<string, Record<string, string>> = {
  '2025-11-25': {
    ...always,
    'logging-set-level': session,
    'tools-call-with-logging': session,
    'tools-call-sampling': session,
    'tools-call-elicitation': session,
    'elicitation-sep1034-defaults': session,
    'elicitation-sep1330-enums': session,
    'resources-subscribe': session,
    'resources-unsubscribe': session,
    'server-sse-polling': `${session}; no check fails, but there is a warning`,
    'server-sse-multiple-streams': `${session}; no check fails, but there is a warning`,
  },
  '2026-07-28': {
    ...always,
    'server-stateless': 'four of its checks call tools of the kit; the others pass',
    'http-custom-header-server-validation': 'wants a tool with parameters in headers',
    'input-required-result-basic-elicitation': asksBack,
    'input-required-result-basic-sampling': asksBack,
    'input-required-result-basic-list-roots': asksBack,
    'input-required-result-request-state': asksBack,
    'input-required-result-multiple-input-requests': asksBack,
    'input-required-result-multi-round': asksBack,
    'input-required-result-non-tool-request': asksBack,
    'input-required-result-result-type': asksBack,
    'input-required-result-tampered-state': asksBack,
    'input-required-result-capability-check': asksBack,
    'input-required-result-missing-input-response': `${asksBack}; no check fails, but there is a warning`,
    'input-required-result-ignore-extra-params': `${asksBack}; no check fails, but there is a warning`,
  },
};

interface Check {
  id: string;
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | string;
}

/** What the kit wrote down of each scenario. */
function checksIn(dir: string): Map<string, Check[]> {
  const found = readdirSync(dir).map((name) => {
    const checks = JSON.parse(readFileSync(join(dir, name, 'checks.json'), 'utf8')) as Check[];
    return [name.replace(/^server-(.*)-\d{4}-\d\d-\d\dT[\d-]+Z$/, '$1'), checks] as const;
  });
  return new Map(found);
}

/** What is not as it was said: scenarios that fail or warn and are not named, and named ones that pass or are not there. */
function surprises(expected: Record<string, string>, told: ReadonlyMap<string, Check[]>): string[] {
  const isGood = (checks: Check[]) => checks.every(({ status }) => !/^(FAILURE|WARNING)$/.test(status));
  const fails = [...told].filter(([name, checks]) => !isGood(checks) && !(name in expected));
  const passes = Object.keys(expected).filter((name) => isGood(told.get(name) ?? []));
  return [...fails.map(([name]) => `${name} fails`), ...passes.map((name) => `${name} does not fail`)];
}

const kit = fileURLToPath(
  new URL('../../../../node_modules/@modelcontextprotocol/conformance/dist/index.js', import.meta.url),
);

for (const [version, scenarios] of Object.entries(expectedFailures)) {
  test(`the public conformance kit finds nothing but the lack of its own fixtures at ${version}`, async (t) => {
    const host = url().host;
    const proxy = await agentProxy(world.service.port, host, world.keys.agentUse);
    const dir = mkdtempSync('/tmp/berth-mcp-');
    t.after(async () => {
      await proxy.close();
      rmSync(dir, { recursive: true, force: true });
    });
    const names = Object.keys(scenarios);
    const baseline = join(dir, 'baseline.yml');
    writeFileSync(baseline, `server:\n${names.map((one) => `  - ${one}\n`).join('')}`);
    const results = join(dir, 'results');
    const args = ['server', '--url', `${proxy.url}/mcp`, '--suite', 'all', '--spec-version', version];
    const child = spawn(process.execPath, [kit, ...args, '--expected-failures', baseline, '-o', results], {
      cwd: dir,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.after(() => child.kill('SIGKILL'));
    let told = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (told += String(text)));
    const code = await new Promise((resolve) => child.once('close', resolve));
    assert.equal(code, 0, told.slice(-6_000));
    const checks = checksIn(results);
    // By our own reading too, which says what it was.
    assert.deepEqual(surprises(scenarios, checks), []);
    const passed = [...checks].filter(([name]) => !(name in scenarios));
    assert.ok(passed.length >= 4, told.slice(-3_000));
    const failing = checks.get('server-stateless')?.filter(({ status }) => status === 'FAILURE') ?? [];
    assert.equal(failing.length, version === '2026-07-28' ? 4 : 0, JSON.stringify(failing));
    // One that would pass from now on, or another that would fail, is found.
    const [gone, ...rest] = names;
    const fewer = Object.fromEntries(rest.map((name) => [name, scenarios[name]!]));
    assert.deepEqual(surprises(fewer, checks), [`${gone} fails`]);
    const [good] = passed[0]!;
    assert.deepEqual(surprises({ ...scenarios, [good]: 'no reason' }, checks), [`${good} does not fail`]);
    // Each stands in the documentation with what it wants.
    const page = readFileSync(new URL('../../../../docs/mcp.md', import.meta.url), 'utf8');
    for (const name of names)
      assert.ok(isTold(page, name), `docs/mcp.md says of ${name} why it is expected to fail`);
    t.diagnostic(`${passed.length} scenarios pass; ${names.length} want what an agent has not`);
  });
}

/** Names that begin alike stand there once, and then by their ends: `tools-call-image`, `-audio`. */
function isTold(page: string, name: string): boolean {
  const table = page.split('\n').filter((line) => line.startsWith('| `'));
  return table.some((line) => {
    let begin = '';
    return [...line.split(' | ')[0]!.matchAll(/`([^`]+)`/g)].some(([, told]) => {
      if (!told!.startsWith('-')) begin = told!;
      if (told === name || (told!.endsWith('-…') && name.startsWith(told!.slice(0, -1)))) return true;
      return begin.split('-').some((_, at, parts) => `${parts.slice(0, at).join('-')}${told}` === name);
    });
  });
}
