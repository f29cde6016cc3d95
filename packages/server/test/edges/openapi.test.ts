import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { OpenApi, Schema } from '../../src/edges/openapi.ts';
import { buildOpenapi, openapiText } from '../../src/edges/openapi.ts';
import { routes } from '../../src/edges/routes.ts';
import { takesBody } from '../../src/edges/http/route.ts';
import { nothing } from '../../src/edges/http/route.ts';
import { breakingChanges } from '../support/openapi-compat.ts';

const root = new URL('../../../../', import.meta.url);
const file = (name: string) => readFileSync(new URL(name, root), 'utf8');
const current = buildOpenapi('http://localhost:8080');

test('openapi.json is what the routes say: run `npm run openapi` after a change', () => {
  assert.equal(file('openapi.json'), openapiText('http://localhost:8080'));
});

test('nothing that was released is removed, renamed, retyped or newly required', () => {
  const released = JSON.parse(file('docs/openapi-released.json')) as OpenApi;
  assert.deepEqual(breakingChanges(released, current), []);
});

test('each kind of breaking change is found', () => {
  const change = (edit: (next: OpenApi) => void) => {
    const next = structuredClone(current);
    edit(next);
    return breakingChanges(current, next).map((line) => line.replace(/^.*: /, ''));
  };
  const schema = (document: OpenApi, name: string): Schema => document.components.schemas[name]!;
  const expectFound = (what: string, edit: (next: OpenApi) => void) => {
    const found = change(edit);
    assert.ok(found.includes(what), `${what} in ${JSON.stringify(found)}`);
  };
  expectFound('removed', (next) => delete next.paths['/v1/agents']!['post']);
  expectFound('removed', (next) => delete schema(next, 'Agent').properties!['gitUrl']);
  expectFound('retyped', (next) => (schema(next, 'Agent').properties!['name']!.type = 'integer'));
  expectFound('retyped', (next) => (schema(next, 'Run').properties!['startedAt']!.type = 'string'));
  expectFound('not always there any more', (next) => schema(next, 'Agent').required!.pop());
  expectFound('became required', (next) => schema(next, 'AgentCreate').required!.push('model'));
  expectFound(
    'a value is not taken any more',
    (next) => (schema(next, 'ChatSend').properties!['onBusy']!.enum = ['enqueue']),
  );
  expectFound('parameter cursor removed', (next) => {
    const operation = next.paths['/v1/agents']!['get']!;
    operation.parameters = operation.parameters.filter((one) => one.name !== 'cursor');
  });
  expectFound('closed to new fields', (next) => (schema(next, 'Agent')['additionalProperties'] = false));
  assert.deepEqual(
    change((next) => {
      schema(next, 'Agent').properties!['colour'] = { type: 'string' };
      schema(next, 'AgentCreate').properties!['colour'] = { type: 'string' };
      next.paths['/v1/new'] = next.paths['/v1/agents']!;
    }),
    [],
  );
});

test('every request and answer has an example that fits its own schema', () => {
  for (const route of routes) {
    if (takesBody(route) && route.body !== nothing) {
      assert.deepEqual(route.body.safeParse(route.bodyExample).error, undefined, `${route.id} body`);
    }
    for (const [status, reply] of Object.entries(route.replies)) {
      if (!reply.schema) continue;
      const parsed = reply.schema.safeParse(reply.example);
      assert.deepEqual(parsed.error, undefined, `${route.id} ${status}`);
      // Nothing is in the example that the schema does not know.
      assert.deepEqual(parsed.data, reply.example, `${route.id} ${status}`);
    }
  }
});

test('requests are closed, answers are open, and every reference leads somewhere', () => {
  const { schemas } = current.components;
  for (const route of routes) {
    const operation = current.paths[route.path]![route.method]!;
    const body = operation.requestBody?.content['application/json']?.schema.$ref;
    if (body) assert.equal(schemas[body.split('/').at(-1)!]!['additionalProperties'], false, route.id);
  }
  const text = JSON.stringify(current);
  for (const [, pointer] of text.matchAll(/"\$ref":"#\/([^"]+)"/g)) {
    const target = pointer!
      .split('/')
      .reduce<unknown>((at, name) => (at as Record<string, unknown>)?.[name], current);
    assert.ok(target, pointer);
  }
  for (const [name, schema] of Object.entries(schemas)) {
    const isRequest = /(Create|Update|Put|Send|Respond)$/.test(name);
    assert.equal(JSON.stringify(schema).includes('"additionalProperties":false'), isRequest, name);
  }
});

test('operation ids are unique, and every keyed call tells its 401, 429 and 500', () => {
  const ids = routes.map((route) => route.id);
  assert.equal(new Set(ids).size, ids.length);
  for (const route of routes) {
    const { responses } = current.paths[route.path]![route.method]!;
    for (const status of ['401', '403', '429', '500', '503'])
      assert.ok(responses[status], `${route.id} ${status}`);
    if (route.path.includes('{')) assert.ok(responses['404'], route.id);
  }
});
