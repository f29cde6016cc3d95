import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test, type TestContext } from 'node:test';
import { fakeService, json, type Seen } from '../../sdk/test/fake-service.ts';
import { egressPresets } from '../../server/src/domain/egress-presets.ts';
import { presetNames } from '../src/commands/egress.ts';
import { runBerth } from './run-berth.ts';

const agentId = '00000000-0000-7000-8000-000000000001';
const listed = { mode: 'list', allow: [], deny: [], presets: ['npm', 'github'], transparent: false };

/** What `berth egress` writes to the service, null for nothing, and how it ends. */
async function change(t: TestContext, policy: object, words: string[]) {
  const { url, seen } = await fakeService(t, [
    (response: ServerResponse, { method, path, body }: Seen): void => {
      if (!path.endsWith('/egress')) return json(200, { agent: { id: agentId, name: 'A' } })(response);
      json(200, { egress: method === 'PUT' ? body : policy })(response);
    },
  ]);
  const [verb = '', ...rules] = words;
  const { code, told } = await runBerth(t, url, ['egress', verb, agentId, ...rules]).ended;
  return { code, told, written: seen.find(({ method }) => method === 'PUT')?.body ?? null };
}

test('the words that are presets are those of the service', () => {
  assert.deepEqual(presetNames, Object.keys(egressPresets));
});

test('a host of one word is denied as a host, and allowed as one', async (t) => {
  const denied = await change(t, { ...listed, allow: ['vm'] }, ['deny', 'vm']);
  assert.deepEqual(denied, { code: 0, told: '', written: { ...listed, deny: ['vm'] } });
  const allowed = await change(t, { ...listed, deny: ['vm'] }, ['allow', 'vm', 'pypi']);
  const presets = ['npm', 'github', 'pypi'];
  assert.deepEqual(allowed, { code: 0, told: '', written: { ...listed, allow: ['vm'], presets } });
});

test('a preset that is listed is taken off, and one whose denial would change nothing is refused', async (t) => {
  const taken = await change(t, listed, ['deny', 'github']);
  assert.deepEqual(taken, { code: 0, told: '', written: { ...listed, presets: ['npm'] } });
  for (const policy of [
    { ...listed, presets: ['npm'] },
    { ...listed, mode: 'open', presets: ['npm'] },
  ]) {
    const refused = await change(t, policy, ['deny', 'github', 'evil.example']);
    assert.deepEqual([refused.code, refused.written], [1, null]);
    assert.match(refused.told, /github: .* name its hosts to deny them/);
  }
});

test('a preset that is listed is taken off in mode open too, and it is said that its hosts stay allowed', async (t) => {
  const taken = await change(t, { ...listed, mode: 'open' }, ['deny', 'npm']);
  assert.deepEqual([taken.code, taken.written], [0, { ...listed, mode: 'open', presets: ['github'] }]);
  assert.match(taken.told, /^npm: taken off, but in mode open every host stays allowed; [^\n]+\n$/);
});

test('a misspelt preset is no host: the preset is named, and how the host is given', async (t) => {
  for (const [word, preset] of [
    ['NPM', 'npm'],
    ['Go', 'go'],
    ['gihtub', 'github'],
    ['GitHup', 'github'],
    ['pyp', 'pypi'],
    ['crate', 'crates'],
    ['nodes', 'node'],
    ['ggitlab', 'gitlab'],
  ] as const)
    for (const [verb, host] of [
      ['allow', `${word}:443`],
      ['deny', `${word}:*`],
    ] as const) {
      const refused = await change(t, listed, [verb, 'good.test', word]);
      assert.deepEqual([refused.code, refused.written], [1, null], word);
      assert.ok(refused.told.startsWith(`${word}: this is no preset; ${preset} is one. `), refused.told);
      assert.ok(refused.told.endsWith(` ${host}\n`), refused.told);
    }
});

test('a host whose name is like that of a preset is taken with a port or a dot, and moved where it is listed', async (t) => {
  const hosts = ['gihtub:443', 'node1:*', 'npm.lan', 'gw', 'gitea', 'mirror', 'node-12'];
  const allowed = await change(t, listed, ['allow', ...hosts]);
  assert.deepEqual(allowed, { code: 0, told: '', written: { ...listed, allow: hosts } });
  const moved = await change(t, { ...listed, allow: ['gihtub'] }, ['deny', 'gihtub']);
  assert.deepEqual(moved, { code: 0, told: '', written: { ...listed, deny: ['gihtub'] } });
});

test('a host is not allowed where it stays denied: what is denied is named', async (t) => {
  for (const [deny, rule] of [
    ['evil.example', 'evil.example:443'],
    ['evil.example', 'EVIL.example:8443/tcp'],
    ['evil.example:*', 'evil.example'],
    ['Evil.Example', 'evil.example'],
    ['*.example', 'evil.example:443'],
    ['evil.example:443', 'evil.example:443/tcp'],
    ['[2001:db8::7]', '[2001:db8::7]:443'],
  ] as const) {
    const refused = await change(t, { ...listed, deny: [deny] }, ['allow', 'good.test', rule]);
    assert.deepEqual([refused.code, refused.written], [1, null], rule);
    assert.ok(refused.told.includes(`${rule}: ${deny} is denied`), refused.told);
  }
  for (const [deny, rule] of [
    ['evil.example:443', 'evil.example'],
    ['evil.example:443', 'evil.example:8443'],
    ['*.example.org', 'example.org:443'],
    ['a.example.org', '*.example.org'],
    ['example.org', 'an-example.org'],
    ['[2001:db8::7]', '[2001:db8::8]:443'],
  ] as const) {
    const allowed = await change(t, { ...listed, deny: [deny] }, ['allow', rule]);
    assert.deepEqual(allowed, { code: 0, told: '', written: { ...listed, allow: [rule], deny: [deny] } });
  }
  // Both in one line: the host is denied no more.
  const both = ['evil.example', 'evil.example:8443'];
  const { written } = await change(t, { ...listed, deny: ['evil.example'] }, ['allow', ...both]);
  assert.deepEqual(written, { ...listed, allow: both });
});
