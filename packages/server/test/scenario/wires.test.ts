import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkLog, logOf, workshop, type Pushed } from '../support/scenario.ts';
import { startScriptedModel, type Script, type ScriptedRequest } from '../support/scripted-model.ts';
import { startService, type Service } from '../support/service.ts';

/**
 * Looks for a text everywhere that a process in the sandbox can read. The needle is put together from two halves, so
 * that the program does not find itself; `self` proves that the search finds what is there.
 */
const searcher = `
const fs = require('node:fs');
const path = require('node:path');
const [half, rest, self] = process.argv.slice(2);
const needles = { key: Buffer.from(half + rest), self: Buffer.from(self) };
const found = { key: [], self: [] };
let looked = 0;
function look(name, bytes) {
  looked += 1;
  for (const [kind, needle] of Object.entries(needles)) if (bytes.includes(needle)) found[kind].push(name);
}
function tree(folder, depth) {
  let entries = [];
  try { entries = fs.readdirSync(folder, { withFileTypes: true }); } catch { return; }
  for (const entry of entries) {
    const at = path.join(folder, entry.name);
    try {
      if (entry.isDirectory()) { if (depth > 0) tree(at, depth - 1); }
      else if (entry.isFile() && fs.statSync(at).size < 20e6) look(at, fs.readFileSync(at));
    } catch {}
  }
}
for (const folder of ['/workspace', '/home', '/root', '/tmp', '/run', '/etc', '/var', '/opt', '/dev/shm']) tree(folder, 8);
for (const pid of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
  for (const part of ['environ', 'cmdline', 'status', 'mountinfo']) {
    try { look('/proc/' + pid + '/' + part, fs.readFileSync('/proc/' + pid + '/' + part)); } catch {}
  }
  if (pid === String(process.pid)) continue;
  // The memory of every other process that may be read; our own holds the needle.
  try {
    const mem = fs.openSync('/proc/' + pid + '/mem', 'r');
    for (const line of fs.readFileSync('/proc/' + pid + '/maps', 'latin1').split('\\n')) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line);
      if (!range) continue;
      const start = parseInt(range[1], 16);
      const bytes = Buffer.alloc(Math.min(parseInt(range[2], 16) - start, 64e6));
      try { const read = fs.readSync(mem, bytes, 0, bytes.length, start); look('/proc/' + pid + '/mem', bytes.subarray(0, read)); } catch {}
    }
  } catch {}
}
console.log(JSON.stringify({ looked, key: found.key, self: found.self.length > 0 }));
`;

const files = {
  'AGENTS.md': 'You search for what is hidden.\n',
  'search.cjs': searcher,
  'note.txt': 'visible-marker-7351\n',
};

function toolResult(request: ScriptedRequest): string | undefined {
  const last = request.body.messages.at(-1);
  if (last.role === 'tool') return String(last.content);
  if (last.role !== 'user' || !Array.isArray(last.content)) return undefined;
  const result = last.content.find((block: { type: string }) => block.type === 'tool_result');
  return result && JSON.stringify(result.content);
}

/** The model asks for the search, an edit, and then says what came back. */
function script(secret: string): Script {
  const half = secret.slice(0, 20);
  const command = `node search.cjs ${half} ${secret.slice(20)} visible-marker-7351; echo found >> note.txt; env`;
  return (request) => {
    const result = toolResult(request);
    if (result !== undefined) return { text: ['I ', 'found: ', result] };
    const isFirst = JSON.stringify(request.body).includes('please look');
    return isFirst && request.body.messages.length <= 2
      ? { text: ['Let me look.'], toolCalls: [{ name: 'bash', input: { command } }] }
      : { text: ['Earlier you asked me to look.'] };
  };
}

function everythingUnder(folder: string, visit: (path: string, bytes: Buffer) => void): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) everythingUnder(path, visit);
    else if (entry.isFile() && statSync(path).size < 64e6) visit(path, readFileSync(path));
  }
}

function nowhere(service: Service, secret: string, texts: string[]): void {
  for (const text of [service.logs(), ...texts]) assert.equal(text.includes(secret), false);
  // The database's own files hold every row as it was written, and the rest of the data directory belongs to nobody else.
  everythingUnder(service.dataDir, (path, bytes) => {
    assert.equal(bytes.includes(secret), false, `the key is in ${path}`);
  });
}

test('Over both wires a turn calls a tool, streams and is remembered, and the provider keys are nowhere to be found.', async (t) => {
  const makeKey = () => `sk-${randomBytes(24).toString('hex')}`;
  const keys = { anthropic: makeKey(), openai: makeKey() };
  const all: string[] = Object.values(keys);
  // What a request came with decides what its answer searches for, so the key of each agent is looked for in its own.
  const model = await startScriptedModel((request, index) => script(keyOf(request))(request, index));
  t.after(() => model.close());
  const service = await startService({
    env: {
      ANTHROPIC_BASE_URL: model.url,
      ANTHROPIC_API_KEY: keys.anthropic,
      OPENAI_BASE_URL: model.openaiUrl,
      OPENAI_API_KEY: keys.openai,
    },
  });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());

  const talks: { agent: Pushed; conversationId: string; key: string }[] = [];
  for (const wire of ['anthropic', 'openai'] as const) {
    for (const own of [null, makeKey()]) {
      const agent = await shop.agent(files, { model: `${wire}/scripted-1` });
      if (own !== null) {
        all.push(own);
        const set = (name: string, value: string) =>
          service.api('PUT', `/v1/agents/${agent.id}/secrets/${name}`, { value });
        assert.equal((await set(`${wire.toUpperCase()}_API_KEY`, own)).status, 204);
        assert.equal((await set('PLAIN', 'plain-secret-value')).status, 204);
      }
      const key = own ?? keys[wire];
      const from = model.requests.length;
      const answered = await agent.say('please look');
      assert.equal(answered.status, 'completed', JSON.stringify(answered));
      checkReport(answered.message.content);
      assert.equal(/PLAIN=plain-secret-value/.test(answered.message.content), own !== null);
      const first = model.requests[from]!;
      assert.equal(first.wire, wire === 'anthropic' ? 'anthropic' : 'openai-chat');
      assert.equal(keyOf(first), key);
      assert.equal(first.body.model, 'scripted-1');
      assert.match(JSON.stringify(first.body), /You search for what is hidden/);
      assert.ok(answered.usage.inputTokens >= 20, JSON.stringify(answered.usage));
      talks.push({ agent, key, conversationId: answered.conversationId });
    }
  }

  await service.restart();
  for (const { agent, conversationId, key } of talks) {
    const again = await agent.say('What did I ask?', conversationId);
    assert.equal(again.message.content, 'Earlier you asked me to look.');
    const last = model.requests.at(-1)!;
    assert.equal(keyOf(last), key);
    assert.match(JSON.stringify(last.body.messages), /please look[\s\S]*What did I ask/);
    const events = await logOf(service, { conversationId });
    checkLog(events);
    for (const secret of all) assert.equal(JSON.stringify(events).includes(secret), false);
  }
  const bodies = model.requests.map((request) => request.bodyBytes.toString());
  await service.stop();
  for (const secret of all) nowhere(service, secret, bodies);
});

function keyOf(request: ScriptedRequest): string {
  if (request.wire === 'anthropic') return String(request.headers['x-api-key']);
  return String(request.headers.authorization).replace('Bearer ', '');
}

function checkReport(content: string): void {
  const found = /\{\\*"looked.*?\}/.exec(content)?.[0];
  assert.ok(found, content);
  const report = JSON.parse(found.replaceAll('\\', '')) as { looked: number; key: string[]; self: boolean };
  assert.deepEqual({ key: report.key, self: report.self }, { key: [], self: true });
  assert.ok(report.looked > 30, `looked at ${report.looked} places`);
}
