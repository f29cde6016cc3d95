import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { restRoutes } from '../../src/edges/a2a/rest.ts';
import { legacyRestRoutes } from '../../src/edges/a2a/rest-0.3.ts';
import { communicationRoutes } from '../../src/edges/agent-communication/mount.ts';
import type { Edge } from '../../src/edges/http/edge.ts';
import { hostOperations } from '../../src/edges/hosts/host-operations.ts';
import { hostMounts } from '../../src/edges/hosts/mounts.ts';
import { openaiOperations } from '../../src/edges/openai/mount.ts';
import { hostOpenapi, hostOpenapiText } from '../../src/edges/openapi-hosts.ts';
import { silentLog } from '../support/log.ts';

test('openapi-agent-host.json is what is said of agents’ hosts: run `npm run openapi` after a change', () => {
  const file = new URL('../../../../openapi-agent-host.json', import.meta.url);
  assert.equal(readFileSync(file, 'utf8'), hostOpenapiText('localhost:8080', 'http'));
});

test('what is described of agents’ hosts is what they serve, no more and no less', () => {
  const served = [
    ...restRoutes.map(({ method, pattern }) => ({ method, pattern, base: '/a2a/http' })),
    ...legacyRestRoutes.map(({ method, pattern }) => ({ method, pattern, base: '/a2a/http/v1' })),
    ...communicationRoutes.flatMap(([pattern, methods]) =>
      Object.keys(methods).map((method) => ({ method, pattern, base: '' })),
    ),
    ...openaiOperations.map(({ method, pattern }) => ({ method, pattern, base: '' })),
  ];
  const path = (text: string) => text.replaceAll(/\{\w+\}/g, 'an-id');
  const fits = (one: (typeof served)[number], operation: (typeof hostOperations)[number]) =>
    one.method.toLowerCase() === operation.method &&
    path(operation.path).startsWith(one.base) &&
    one.pattern.test(path(operation.path).slice(one.base.length));
  for (const one of served) {
    const found = hostOperations.filter((operation) => fits(one, operation));
    assert.equal(found.length, 1, `${one.method} ${one.base}${one.pattern}: ${JSON.stringify(found)}`);
  }
  const single = ['/.well-known/agent-card.json', '/a2a', '/acp', '/mcp'];
  for (const operation of hostOperations) {
    const isServed = single.includes(operation.path) || served.some((one) => fits(one, operation));
    assert.ok(isServed, `${operation.method} ${operation.path}`);
  }
  // Every protocol that is mounted is described, and nobody else takes its path.
  const addresses = { baseUrl: 'http://localhost:8080', appDomain: 'localhost:8080' };
  const mounts = hostMounts({ addresses, log: silentLog, services: {} } as unknown as Edge);
  const names = new Set(
    hostOperations.map((operation) => mounts.find((mount) => mount.owns(path(operation.path)))!.name),
  );
  assert.deepEqual(
    [...names].sort(),
    mounts
      .map(({ name }) => name)
      .filter((name) => name !== 'web')
      .sort(),
  );
});

test('each call has a name of its own, and its path its variables', () => {
  const all = Object.entries(hostOpenapi('localhost:8080', 'http').paths).flatMap(([path, methods]) =>
    Object.values(methods).map((operation) => ({
      path,
      ...(operation as { operationId: string; parameters?: { name: string }[] }),
    })),
  );
  assert.equal(new Set(all.map(({ operationId }) => operationId)).size, all.length);
  for (const { path, parameters = [] } of all)
    assert.deepEqual(
      parameters.map(({ name }) => `{${name}}`),
      path.match(/\{\w+\}/g) ?? [],
    );
});
