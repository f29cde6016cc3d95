import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { Media, OpenApi, Operation, ResponseObject } from '../../src/edges/openapi.ts';
import { jsonSchemaChecker } from './json-schema.ts';
import type { Reply } from './service.ts';

/** The published document, not what the routes would say now: a client has only this. */
export const openapi = JSON.parse(
  readFileSync(new URL('../../../../openapi.json', import.meta.url), 'utf8'),
) as OpenApi;

const problems = jsonSchemaChecker(openapi.components.schemas);
const responses = openapi.components['responses'] as Record<string, ResponseObject>;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export interface Operated {
  method: string;
  template: string;
  operation: Operation;
}

/** Every call of the document. */
export const operations: Operated[] = Object.entries(openapi.paths).flatMap(([template, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    method: method.toUpperCase(),
    template,
    operation,
  })),
);

/** An exact template goes before one that takes any path. Made once: every answer of the contract is looked up here. */
const patterns = [...operations]
  .sort((a, b) => Number(a.template.includes('{path}')) - Number(b.template.includes('{path}')))
  .map((one) => ({
    one,
    pattern: new RegExp(`^${one.template.replace('{path}', '.*').replace(/\{\w+\}/g, '[^/]+')}$`),
  }));

/** The call that a request is one of. */
export function findOperation(method: string, path: string): Operated | undefined {
  const bare = path.split('?')[0]!;
  return patterns.find(({ one, pattern }) => one.method === method && pattern.test(bare))?.one;
}

/** Text of a stack trace or of our insides, which no answer may hold. */
const insides = /\n\s+at |node:internal|\.ts:\d+|postgres\.js|PostgresError|\/packages\/server/;

/**
 * Checks an answer against the published contract: status declared, body of its schema, one error shape, request id,
 * nothing of our insides.
 */
export function checkAnswer(method: string, path: string, reply: Reply): void {
  const name = `${method} ${path.slice(0, 200)} ${reply.status}`;
  assert.match(reply.headers.get('x-request-id') ?? '', uuid, `${name}: X-Request-Id`);
  assert.doesNotMatch(reply.text.slice(0, 50_000), insides, name);
  const found = findOperation(method, path);
  if (!found) {
    assert.ok([404, 405].includes(reply.status), `${name}: is no call of openapi.json`);
    return checkError(name, reply);
  }
  const declared = found.operation.responses[reply.status];
  assert.ok(declared, `${name}: the status is not declared; ${reply.text.slice(0, 300)}`);
  if ('$ref' in declared) {
    assert.ok(responses[declared.$ref.split('/').at(-1)!], `${name}: ${declared.$ref} is missing`);
    return checkError(name, reply);
  }
  if (!declared.content) return assert.equal(reply.text, '', `${name}: has a body`);
  const media = mediaOf(declared, reply);
  assert.ok(media, `${name}: ${reply.headers.get('content-type')} is not declared`);
  if (reply.headers.get('content-type') === 'application/json') {
    assert.deepEqual(problems(media.schema, reply.body), [], `${name}: ${reply.text.slice(0, 1_000)}`);
  }
}

function mediaOf(declared: ResponseObject, reply: Reply): Media | undefined {
  return declared.content?.[reply.headers.get('content-type')?.split(';')[0] ?? ''];
}

function checkError(name: string, reply: Reply): void {
  assert.equal(reply.headers.get('content-type'), 'application/json', name);
  const error = openapi.components.schemas['Error']!;
  assert.deepEqual(problems(error, reply.body), [], `${name}: ${reply.text.slice(0, 500)}`);
  assert.ok(reply.body.error.length > 0, `${name}: the error has no words`);
}

/** What is wrong with one event of a stream. */
export function eventProblems(value: unknown): string[] {
  return problems(openapi.components.schemas['Event']!, value);
}
