// Writes packages/sdk/src/types.generated.ts from openapi.json: `npm run openapi` runs it after the document itself.
// With --check it compares instead, and fails when the file is stale.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const target = join(root, 'packages', 'sdk', 'src', 'types.generated.ts');
const { components } = JSON.parse(readFileSync(join(root, 'openapi.json'), 'utf8'));

/** A JSON Schema (2020-12, as far as the document uses it) as a TypeScript type. */
function typeOf(schema, indent) {
  if (schema.$ref) return schema.$ref.split('/').at(-1);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) return alternatives.map((one) => typeOf(one, indent)).join(' | ');
  if (Array.isArray(schema.type)) {
    return schema.type.map((type) => typeOf({ ...schema, type }, indent)).join(' | ');
  }
  switch (schema.type) {
    case 'string':
    case 'boolean':
    case 'null':
      return schema.type;
    case 'integer':
    case 'number':
      return 'number';
    case 'array': {
      const item = typeOf(schema.items ?? {}, indent);
      return item.includes(' ') && !item.startsWith('{') ? `(${item})[]` : `${item}[]`;
    }
    case 'object':
      return objectOf(schema, indent);
    default:
      return 'unknown';
  }
}

function objectOf(schema, indent) {
  const properties = Object.entries(schema.properties ?? {});
  if (properties.length === 0) return 'Record<string, unknown>';
  const required = new Set(schema.required ?? []);
  const lines = properties.flatMap(([name, property]) => [
    ...(property.description ? [`${indent}  /** ${property.description.replaceAll('*/', '* /')} */`] : []),
    `${indent}  ${name}${required.has(name) ? '' : '?'}: ${typeOf(property, `${indent}  `)};`,
  ]);
  return `{\n${lines.join('\n')}\n${indent}}`;
}

const parts = ['// Generated from openapi.json by scripts/write-sdk-types.mjs; do not edit.\n'];
for (const [name, schema] of Object.entries(components.schemas)) {
  // `Error` would hide the language's own.
  if (name === 'Error') continue;
  const body = typeOf(schema, '');
  parts.push(
    schema.type === 'object' && schema.properties
      ? `export interface ${name} ${body}\n`
      : `export type ${name} = ${body};\n`,
  );
}
const text = parts.join('\n');

if (!process.argv.includes('--check')) {
  writeFileSync(target, text);
} else if (readFileSync(target, 'utf8') !== text) {
  process.stderr.write('packages/sdk/src/types.generated.ts is stale; run: npm run openapi\n');
  process.exit(1);
}
