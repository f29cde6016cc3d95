import type { Addresses } from '../http/route.ts';
import type { Media, OpenApi, Operation, Parameter, ResponseObject, Schema } from '../openapi.ts';
import { buildOpenapi } from '../openapi.ts';
import { escape, inline, prose, shell } from './html.ts';
import { style } from './style.ts';

/** The API reference as one page without script, made from the OpenAPI document alone. */
export function docsPage({ baseUrl }: Addresses): string {
  const document = buildOpenapi(baseUrl);
  return shell(
    'Berth API reference',
    style,
    `<div class="page">
<nav aria-label="Calls"><a href="/"><b>Berth</b></a>
${document.tags.map((tag) => navOf(document, tag.name)).join('\n')}
<h2>More</h2><ul><li><a href="#errors">Errors</a></li><li><a href="/openapi.json">openapi.json</a></li></ul>
</nav>
<main>
<h1>Berth API</h1>
${prose(document.info.description)}
${document.tags.map((tag) => chapter(document, tag)).join('\n')}
${errors(document)}
</main>
</div>`,
  );
}

interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

function entriesOf(document: OpenApi, tag: string): Entry[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => operation.tags.includes(tag))
      .map(([method, operation]) => ({ method, path, operation })),
  );
}

function navOf(document: OpenApi, tag: string): string {
  const items = entriesOf(document, tag).map(
    ({ operation }) => `<li><a href="#${operation.operationId}">${escape(operation.summary)}</a></li>`,
  );
  return `<h2>${escape(tag)}</h2><ul>${items.join('')}</ul>`;
}

function chapter(document: OpenApi, tag: { name: string; description: string }): string {
  const parts = entriesOf(document, tag.name).map((entry) => section(document, entry));
  return `<h2>${escape(tag.name)}</h2><p class="soft">${inline(tag.description)}</p>\n${parts.join('\n')}`;
}

function section(document: OpenApi, { method, path, operation }: Entry): string {
  const body = operation.requestBody?.content['application/json'];
  return `<section class="op" id="${operation.operationId}">
<h3>${escape(operation.summary)}</h3>
<div class="call"><span class="verb ${method}">${method.toUpperCase()}</span>${escape(path)}</div>
${prose(operation.description)}
${parameters(operation.parameters)}
${body ? `<h4>Body</h4>${fields(document, body.schema)}` : bytesBody(operation)}
<h4>Example</h4>
<pre><code>${escape(curl(document, method, path, body))}</code></pre>
${Object.entries(operation.responses)
  .map(([status, response]) => ('$ref' in response ? '' : answer(document, status, response)))
  .join('\n')}
<p class="soft">Errors: ${Object.entries(operation.responses)
    .filter(([, response]) => '$ref' in response)
    .map(([status]) => `<a href="#error-${status}">${status}</a>`)
    .join(' · ')}</p>
</section>`;
}

/** A body that is bytes: which media types it may be of. */
function bytesBody(operation: Operation): string {
  const kinds = Object.entries(operation.requestBody?.content ?? {});
  if (kinds.length === 0) return '';
  const rows = kinds.map(
    ([type, media]) =>
      `<tr><td><code>${escape(type)}</code></td><td>${inline(media.schema.description ?? '')}</td></tr>`,
  );
  return `<h4>Body</h4><table>${rows.join('')}</table>`;
}

function parameters(list: Parameter[]): string {
  if (list.length === 0) return '';
  const rows = list.map((one) => {
    const kind = `${one.in}${one.required ? ', required' : ''}`;
    return `<tr><td><code>${escape(one.name)}</code> <span class="soft">${kind}</span></td><td>${inline(one.description)}</td></tr>`;
  });
  return `<h4>Parameters</h4><table>${rows.join('')}</table>`;
}

function resolve(document: OpenApi, schema: Schema): Schema {
  const name = schema.$ref?.split('/').at(-1);
  return name ? (document.components.schemas[name] ?? schema) : schema;
}

/** The fields of an object, and those of the objects in it, as dotted names. */
function fields(document: OpenApi, schema: Schema): string {
  const rows: string[] = [];
  const walk = (at: Schema, prefix: string, depth: number) => {
    const object = resolve(document, at);
    for (const [name, field] of Object.entries(object.properties ?? {})) {
      const whole = { ...resolve(document, field), ...field };
      const required = object.required?.includes(name) ? ', always' : ', optional';
      rows.push(
        `<tr><td><code>${escape(prefix + name)}</code> <span class="soft">${typeText(document, whole)}${required}</span></td><td>${inline(whole.description ?? '')}</td></tr>`,
      );
      const inner = inside(document, whole);
      if (inner && depth < 3) walk(inner.schema, `${prefix}${name}${inner.mark}`, depth + 1);
    }
  };
  const root = resolve(document, schema);
  walk(root.type === 'array' ? (root.items ?? {}) : root, root.type === 'array' ? '[].' : '', 0);
  return rows.length === 0 ? '' : `<table>${rows.join('')}</table>`;
}

function inside(document: OpenApi, schema: Schema): { schema: Schema; mark: string } | null {
  const options = schema['anyOf'] as Schema[] | undefined;
  const option = options?.find((one) => one.type !== 'null');
  if (option) return inside(document, resolve(document, option));
  if (schema.properties) return { schema, mark: '.' };
  if (schema.items && resolve(document, schema.items).properties)
    return { schema: schema.items, mark: '[].' };
  return null;
}

function typeText(document: OpenApi, schema: Schema): string {
  const options = schema['anyOf'] as Schema[] | undefined;
  if (options) {
    return options.map((one) => typeText(document, resolve(document, one))).join(' or ');
  }
  if (schema.enum) return schema.enum.map((value) => escape(JSON.stringify(value))).join(' | ');
  if (schema.items) return `array of ${typeText(document, resolve(document, schema.items))}`;
  return escape([schema.type ?? 'any'].flat().join(' or '));
}

function curl(document: OpenApi, method: string, path: string, body: Media | undefined): string {
  const filled = path.replace('{key}', 'GITHUB_TOKEN').replace(/\{(\w+)\}/g, (_, name: string) => `$${name}`);
  const lines = [
    `curl ${method === 'get' ? '' : `-X ${method.toUpperCase()} `}"${document.servers[0]!.url}${filled}"`,
  ];
  lines.push('  -H "Authorization: Bearer $BERTH_API_KEY"');
  if (body) lines.push("  -H 'Content-Type: application/json'", `  -d '${JSON.stringify(body.example)}'`);
  return lines.join(' \\\n');
}

function answer(document: OpenApi, status: string, response: ResponseObject): string {
  const parts = Object.entries(response.content ?? {}).map(([type, media]) => {
    if (media.example === undefined) {
      return `<p><code>${escape(type)}</code> ${inline(media.schema.description ?? '')}</p>`;
    }
    const example =
      typeof media.example === 'string' ? media.example : JSON.stringify(media.example, null, 2);
    const table = type === 'application/json' ? fields(document, media.schema) : '';
    return `<pre><code>${escape(example)}</code></pre>${
      table ? `<details><summary>Fields</summary>${table}</details>` : ''
    }`;
  });
  return `<h4>${status} <span class="soft">${inline(response.description)}</span></h4>${parts.join('\n')}`;
}

interface ErrorResponse {
  description: string;
  content: Record<string, { examples: Record<string, { value: unknown }> }>;
}

function errors(document: OpenApi): string {
  const responses = document.components['responses'] as Record<string, ErrorResponse>;
  const statuses = new Map<string, string>();
  for (const methods of Object.values(document.paths)) {
    for (const operation of Object.values(methods)) {
      for (const [status, response] of Object.entries(operation.responses)) {
        if ('$ref' in response) statuses.set(status, response.$ref.split('/').at(-1)!);
      }
    }
  }
  const parts = [...statuses].sort().map(([status, name]) => {
    const response = responses[name]!;
    const examples = Object.values(response.content['application/json']!.examples).map(
      (one) => `<pre><code>${escape(JSON.stringify(one.value, null, 2))}</code></pre>`,
    );
    return `<section class="op" id="error-${status}"><h3>${status}</h3>${prose(response.description)}${examples.join('')}</section>`;
  });
  return `<h2 id="errors">Errors</h2><p class="soft">Every error is JSON of this shape; <code>code</code> is for programs, <code>error</code> for people.</p>${parts.join('\n')}`;
}
