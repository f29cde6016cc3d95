import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as z from 'zod';
import {
  defaultManifest,
  manifestFields,
  manifestLimitBounds,
  readManifest,
} from '../../src/domain/manifest.ts';

const schemaFile = new URL('../../../../docs/agent.schema.json', import.meta.url);
const schema = JSON.parse(readFileSync(schemaFile, 'utf8'));
const published = z.fromJSONSchema(schema);

const accepted: unknown[] = [
  {},
  { $schema: 'https://example.com/agent.schema.json' },
  { harness: 'builtin' },
  { command: ['node', 'agent.mjs', ''] },
  { command: ['./agent'], protocol: 'acp', permissions: 'ask' },
  { protocol: 'acp' },
  { instructions: 'docs/AGENT.md' },
  { instructions: '.agent/..hidden' },
  { limits: {} },
  { limits: { memoryMb: 64, cpus: 0.1, pids: 32, diskMb: 16, idleSeconds: 1 } },
  { limits: { memoryMb: 1048576, cpus: 256, pids: 32768, diskMb: 1048576, idleSeconds: 86400 } },
  { limits: { gpus: 1 }, name: 'ignored' },
  { web: { port: 1 } },
  { web: { port: 65535, public: true, command: ['node', 'server.mjs'], path: 'ignored' } },
];

const refused: [unknown, RegExp][] = [
  [[], /must be a JSON object/],
  ['x', /must be a JSON object/],
  [{ harness: 'codex' }, /^agent\.json: harness: only "builtin"/],
  [{ command: 'node agent.mjs' }, /^agent\.json: command: must be an array/],
  [{ command: [] }, /^agent\.json: command/],
  [{ command: [1] }, /^agent\.json: command/],
  [{ command: Array.from({ length: 65 }, () => 'x') }, /^agent\.json: command/],
  [{ command: ['x'.repeat(4097)] }, /^agent\.json: command/],
  [{ protocol: 'http' }, /^agent\.json: protocol: only "acp"/],
  [{ permissions: 'never' }, /^agent\.json: permissions/],
  [{ instructions: '' }, /^agent\.json: instructions/],
  [{ instructions: '/etc/passwd' }, /^agent\.json: instructions/],
  [{ instructions: '../x' }, /^agent\.json: instructions/],
  [{ instructions: 'a/../x' }, /^agent\.json: instructions/],
  [{ instructions: 'a//x' }, /^agent\.json: instructions/],
  [{ instructions: 'HEAD:x' }, /^agent\.json: instructions/],
  [{ instructions: 7 }, /^agent\.json: instructions/],
  [{ web: [] }, /^agent\.json: web: must be an object/],
  [{ web: {} }, /^agent\.json: web\.port: must be a whole number from 1 to 65535/],
  [{ web: { port: 0 } }, /^agent\.json: web\.port/],
  [{ web: { port: 65536 } }, /^agent\.json: web\.port/],
  [{ web: { port: '80' } }, /^agent\.json: web\.port/],
  [{ web: { port: 80, public: 'yes' } }, /^agent\.json: web\.public/],
  [{ web: { port: 80, command: [] } }, /^agent\.json: web\.command: must be an array/],
  [{ limits: [] }, /^agent\.json: limits: must be an object/],
  [{ limits: { memoryMb: 63 } }, /^agent\.json: limits\.memoryMb: must be a whole number from 64 to 1048576/],
  [{ limits: { memoryMb: 64.5 } }, /^agent\.json: limits\.memoryMb/],
  [{ limits: { cpus: '1' } }, /^agent\.json: limits\.cpus/],
  [{ limits: { pids: 32769 } }, /^agent\.json: limits\.pids/],
];

test('what the published schema of agent.json accepts and refuses, the service does too', () => {
  for (const value of accepted) {
    const text = JSON.stringify(value);
    assert.equal(readManifest(text).ok, true, text);
    assert.equal(published.safeParse(value).success, true, `schema: ${text}`);
  }
  for (const [value, error] of refused) {
    const text = JSON.stringify(value).slice(0, 100);
    const result = readManifest(JSON.stringify(value));
    assert.ok(!result.ok, text);
    assert.match(result.error, error);
    assert.equal(published.safeParse(value).success, false, `schema: ${text}`);
  }
});

test('the published schema of agent.json has every field and bound', () => {
  assert.deepEqual(Object.keys(schema.properties), manifestFields);
  assert.deepEqual(Object.keys(schema.properties.limits.properties), Object.keys(manifestLimitBounds));
  for (const [name, { min, max, whole }] of Object.entries(manifestLimitBounds)) {
    const { minimum, maximum, type } = schema.properties.limits.properties[name];
    assert.deepEqual([minimum, maximum, type], [min, max, whole ? 'integer' : 'number']);
  }
});

test('a repository without an agent.json gets the defaults', () => {
  assert.deepEqual(readManifest(null), { ok: true, manifest: defaultManifest, notes: [] });
  assert.deepEqual(readManifest('\ufeff{}'), { ok: true, manifest: defaultManifest, notes: [] });
});

test('unknown fields are ignored and named', () => {
  const result = readManifest('{"name": "x", "limits": {"toString": 1}, "build": []}');
  assert.ok(result.ok);
  assert.deepEqual(result.manifest, defaultManifest);
  assert.equal(result.notes.length, 3);
  assert.match(result.notes.join('\n'), /"name".*\n.*"build".*\n.*"limits\.toString"/);
});

test('what no environment or argument vector can hold is refused, and so is text that is not JSON', () => {
  for (const text of ['{"command": ["a\\u0000"]}', '{"command": ["\\ud800"]}', '{"command": [""]}']) {
    assert.equal(readManifest(text).ok, false, text);
  }
  assert.equal(readManifest('{"instructions": "a\\u0007"}').ok, false);
  const result = readManifest('{"token": "hidden", // comment\n}');
  assert.ok(!result.ok);
  assert.doesNotMatch(result.error, /hidden/);
});

test('both a harness and a command are refused', () => {
  assert.equal(readManifest('{"harness": "builtin", "command": ["x"]}').ok, false);
});
