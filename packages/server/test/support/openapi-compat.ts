import type { OpenApi, Operation, Schema } from '../../src/edges/openapi.ts';

type Direction = 'request' | 'response';

/**
 * What in `next` would break a client that was made for `released` ("Within v1, response shapes change only by
 * addition", specification, Versioning).
 */
export function breakingChanges(released: OpenApi, next: OpenApi): string[] {
  const found: string[] = [];
  for (const [path, methods] of Object.entries(released.paths)) {
    for (const [method, before] of Object.entries(methods)) {
      const name = `${method.toUpperCase()} ${path}`;
      const now = next.paths[path]?.[method];
      if (now) compareOperation(name, before, now);
      else found.push(`${name}: removed`);
    }
  }
  return found;

  function compareOperation(name: string, before: Operation, now: Operation): void {
    if (before.operationId !== now.operationId) found.push(`${name}: operationId changed`);
    for (const old of before.parameters) {
      const same = now.parameters.find((one) => one.name === old.name && one.in === old.in);
      if (!same) found.push(`${name}: parameter ${old.name} removed`);
      else compare(`${name} ${old.name}`, 'request', old.schema, same.schema);
    }
    for (const one of now.parameters) {
      const old = before.parameters.find((other) => other.name === one.name && other.in === one.in);
      if (one.required && !old?.required) found.push(`${name}: parameter ${one.name} became required`);
    }
    if (now.requestBody?.required && !before.requestBody?.required)
      found.push(`${name}: body became required`);
    const oldBody = before.requestBody?.content['application/json']?.schema;
    const newBody = now.requestBody?.content['application/json']?.schema;
    if (oldBody && !newBody) found.push(`${name}: body removed`);
    if (oldBody && newBody) compare(`${name} body`, 'request', oldBody, newBody);
    compareResponses(name, before, now);
  }

  function compareResponses(name: string, before: Operation, now: Operation): void {
    for (const [status, old] of Object.entries(before.responses)) {
      if ('$ref' in old) continue;
      const same = now.responses[status];
      if (!same || '$ref' in same) {
        found.push(`${name} ${status}: removed`);
        continue;
      }
      for (const header of Object.keys(old.headers ?? {})) {
        if (!same.headers?.[header]) found.push(`${name} ${status}: header ${header} removed`);
      }
      for (const [type, media] of Object.entries(old.content ?? {})) {
        const other = same.content?.[type];
        if (!other) found.push(`${name} ${status}: ${type} removed`);
        else compare(`${name} ${status}`, 'response', media.schema, other.schema);
      }
    }
  }

  function compare(at: string, direction: Direction, one: Schema, two: Schema): void {
    const before = resolve(released, one);
    const now = resolve(next, two);
    const [oldOptions, newOptions] = [optionsOf(before), optionsOf(now)];
    if (oldOptions || newOptions) {
      const shape = (document: OpenApi, list: Schema[] = []) =>
        list.map((s) => typesOf(resolve(document, s))).join();
      if (shape(released, oldOptions ?? [before]) !== shape(next, newOptions ?? [now]))
        found.push(`${at}: retyped`);
      for (const [index, option] of (oldOptions ?? []).entries()) {
        if (newOptions?.[index]) compare(at, direction, option, newOptions[index]);
      }
      return;
    }
    if (typesOf(before) !== typesOf(now)) found.push(`${at}: retyped`);
    compareEnums(at, direction, before, now);
    compareFields(at, direction, before, now);
    if (before.items && now.items) compare(`${at}[]`, direction, before.items, now.items);
    if (direction === 'response' && now['additionalProperties'] === false)
      found.push(`${at}: closed to new fields`);
  }

  function compareEnums(at: string, direction: Direction, before: Schema, now: Schema): void {
    if (direction === 'request' && before.enum?.some((value) => !now.enum?.includes(value) && now.enum)) {
      found.push(`${at}: a value is not taken any more`);
    }
    if (direction === 'request' && !before.enum && now.enum) found.push(`${at}: narrowed to an enum`);
  }

  function compareFields(at: string, direction: Direction, before: Schema, now: Schema): void {
    for (const [field, old] of Object.entries(before.properties ?? {})) {
      const same = now.properties?.[field];
      if (!same) {
        found.push(`${at}.${field}: removed`);
        continue;
      }
      compare(`${at}.${field}`, direction, old, same);
      const wasAlways = before.required?.includes(field);
      if (direction === 'response' && wasAlways && !now.required?.includes(field)) {
        found.push(`${at}.${field}: not always there any more`);
      }
    }
    if (direction === 'response') return;
    for (const field of now.required ?? []) {
      if (!before.required?.includes(field)) found.push(`${at}.${field}: became required`);
    }
  }
}

function resolve(document: OpenApi, schema: Schema): Schema {
  const name = schema.$ref?.split('/').at(-1);
  return name ? document.components.schemas[name]! : schema;
}

const optionsOf = (schema: Schema) => schema['anyOf'] as Schema[] | undefined;
const typesOf = (schema: Schema) => [schema.type ?? 'any'].flat().toSorted().join('|');
