import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyArtifact } from '../../src/domain/artifacts.ts';
import { readInput } from '../../src/domain/input-form.ts';
import { base64Bytes, isBase64, requireMetadata, requireParts } from '../../src/domain/parts.ts';
import type { Artifact, MessagePart } from '../../src/domain/parts.ts';

test('base64 is told from what is not, also when it is long, and its bytes are counted', () => {
  for (const [text, bytes] of [
    ['', 0],
    ['AA==', 1],
    ['AAA=', 2],
    ['AAAA', 3],
    ['A'.repeat(8_000_000), 6_000_000],
  ] as const) {
    assert.equal(isBase64(text), true, text.slice(0, 10));
    assert.equal(base64Bytes(text), bytes);
  }
  for (const text of ['A', 'AA', 'AAA', 'A===', '=AAA', 'AA=A', 'A-_A', 'AA A', 'AAA\n']) {
    assert.equal(isBase64(text), false, text);
  }
});

test('parts are bounded in number and size, and nothing is taken that could not be stored', () => {
  const data = (value: unknown): MessagePart => ({
    kind: 'data',
    data: value,
    mediaType: 'application/json',
  });
  const pathOf = (parts: MessagePart[]) => {
    try {
      requireParts('parts', parts);
      return null;
    } catch (error) {
      return (error as { details: { path: string }[] }).details[0]!.path;
    }
  };
  let deep: unknown = 1;
  for (let i = 0; i < 65; i += 1) deep = [deep];
  assert.equal(pathOf([data(null), data({ a: [true, 'x'] })]), null);
  assert.equal(pathOf([data('x'.repeat(4 * 1024 * 1024))]), 'parts');
  assert.equal(pathOf(Array.from({ length: 21 }, () => data(1))), 'parts');
  for (const value of [undefined, '\u0000', { '\u0000': 1 }, ['\ud800'], deep, NaN, [-Infinity]]) {
    assert.equal(pathOf([data(value)]), 'parts.0.data');
  }
  const link = (url: string): MessagePart => ({ kind: 'link', name: null, mediaType: null, url });
  assert.equal(pathOf([link('https://example.com/a?b#c'), link('urn:x:y')]), null);
  for (const url of ['', 'x', '//x', 'https://a b', `https://${'x'.repeat(2_000)}`]) {
    assert.equal(pathOf([link(url)]), 'parts.0.url');
  }
  assert.throws(() => requireMetadata('metadata', { a: 'x'.repeat(16_384) }), { code: 'invalid_request' });
  assert.throws(() => requireMetadata('metadata', { a: [Infinity] }), { code: 'invalid_request' });
  requireMetadata('metadata', { a: 'x'.repeat(16_000) });
});

test('an answer is read by its form: a text for the property that it can mean, else each by its name and type', () => {
  const string = { type: 'string' };
  const form = (properties: object, required: string[] = []) => ({ type: 'object', properties, required });
  assert.deepEqual(readInput(form({ name: string }), 'Ada'), { name: 'Ada' });
  assert.deepEqual(readInput(form({ n: { type: 'number' }, a: string, b: string }, ['b']), 'x'.repeat(3)), {
    b: 'xxx',
  });
  assert.deepEqual(readInput({}, 'anything'), { text: 'anything' });
  assert.deepEqual(readInput({}, { free: ['a'] }), { free: ['a'] });
  const all = form({
    n: { type: 'integer' },
    ok: { type: 'boolean' },
    pick: { type: 'string', enum: ['a', 'b'] },
    titled: { type: 'string', oneOf: [{ const: 'x', title: 'X' }] },
    many: { type: 'array', items: { enum: ['a', 'b'] } },
  });
  const good = { n: 3, ok: false, pick: 'a', titled: 'x', many: ['b'] };
  assert.deepEqual(readInput(all, good), good);
  const refusals: [unknown, string][] = [
    [{ n: 1.5 }, 'content.n'],
    [{ n: '1' }, 'content.n'],
    [{ ok: 1 }, 'content.ok'],
    [{ pick: 'c' }, 'content.pick'],
    [{ titled: 'y' }, 'content.titled'],
    [{ many: ['c'] }, 'content.many'],
    [{ many: 'a' }, 'content.many'],
    [{ other: 1 }, 'content.other'],
    [{ n: {} }, 'content.n'],
  ];
  for (const [given, path] of refusals) {
    assert.throws(
      () => readInput(all, given as Record<string, unknown>),
      (error: { details: object[] }) => {
        assert.equal((error.details[0] as { path: string }).path, path);
        return true;
      },
    );
  }
  assert.throws(() => readInput(form({ name: string }, ['name']), {}), /content\.name: is required/);
  assert.throws(() => readInput(form({ name: string }), 'x'.repeat(200_000)), /at most 200000/);
  // What a form says of patterns is never run here.
  assert.deepEqual(readInput(form({ a: { type: 'string', pattern: '(a+)+$' } }), `${'a'.repeat(40)}!`), {
    a: `${'a'.repeat(40)}!`,
  });
});

test('updates of artifacts replace or add, and what a later one leaves out stays', () => {
  const artifacts = new Map<string, Artifact>();
  const update = (more: object) =>
    applyArtifact(artifacts, {
      runId: 'r',
      artifactId: 'a',
      name: null,
      description: null,
      append: false,
      lastChunk: true,
      parts: [],
      ...more,
    });
  const text = (value: string) => ({ kind: 'text' as const, text: value });
  update({ name: 'n', parts: [text('1')] });
  update({ artifactId: 'b', append: true, parts: [text('x')] });
  update({ append: true, parts: [text('2')] });
  assert.deepEqual(
    [...artifacts.values()],
    [
      { artifactId: 'a', name: 'n', description: null, parts: [text('1'), text('2')] },
      { artifactId: 'b', name: null, description: null, parts: [text('x')] },
    ],
  );
  update({ description: 'd', parts: [text('3')] });
  assert.deepEqual(artifacts.get('a'), {
    artifactId: 'a',
    name: 'n',
    description: 'd',
    parts: [text('3')],
  });
});
