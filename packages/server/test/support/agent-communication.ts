import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { hostFetch } from './host-fetch.ts';

// oxlint-disable-next-line no-explicit-any -- a document of OpenAPI, and answers of all kinds
type Any = any;

const file = new URL('./data/agent-communication-0.2.0.openapi.json', import.meta.url);
// `nullable` is a word of OpenAPI 3.0, which means nothing in the 3.1 that the document says it is.
const openapi = JSON.parse(readFileSync(file, 'utf8'), (key, value: unknown) =>
  key === 'nullable' ? undefined : value,
) as Any;
const ajv = new Ajv2020({ strict: false, allErrors: true });
for (const [name, pattern] of Object.entries({
  uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  uri: /^[a-z][a-z0-9+.-]*:\S+$/i,
  'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/,
  email: /@/,
}))
  ajv.addFormat(name, pattern);
ajv.addFormat('float', { type: 'number', validate: Number.isFinite });
ajv.addSchema(openapi, 'openapi');

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  body: Any;
  /** Of a stream. */
  events: Any[];
}

/** Calls of the protocol at an agent's host; every answer is held against its OpenAPI document. */
export function communicationApi(port: number, agentId: string, key: string) {
  const origin = `http://${agentId}.localhost:${port}`;
  const fetch = hostFetch(port);
  return async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => {
    const sent = await fetch(`${origin}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await sent.text();
    const type = sent.headers.get('content-type') ?? '';
    const events = type.startsWith('text/event-stream') ? eventsOf(text) : [];
    const answer = {
      status: sent.status,
      headers: sent.headers,
      text,
      body: events.length ? null : JSON.parse(text),
      events,
    };
    check(method, path, type.split(';')[0]!, answer);
    return answer;
  };
}

function eventsOf(text: string): Any[] {
  return text
    .split('\n\n')
    .flatMap((frame) => (frame.startsWith('data: ') ? [JSON.parse(frame.slice(6))] : []));
}

/** Throws unless the document says that the operation may be answered so. */
function check(method: string, path: string, type: string, { status, body, events }: Answer): void {
  const template = Object.keys(openapi.paths).find((one) =>
    new RegExp(`^${one.replaceAll(/\{\w+\}/g, '[^/]+')}$`).test(path.split('?')[0]!),
  );
  const operation = template && openapi.paths[template][method.toLowerCase()];
  const at = operation?.responses[String(status)]
    ? `paths/${template!.replaceAll('~', '~0').replaceAll('/', '~1')}/${method.toLowerCase()}/responses/${status}/content/${type.replace('/', '~1')}/schema`
    : 'components/schemas/Error';
  if (!operation || !operation.responses[String(status)])
    assert.ok(status >= 400, `${method} ${path}: ${status}`);
  for (const value of events.length ? events : [body]) assertIs(at, value);
}

function assertIs(at: string, value: unknown): void {
  const checker =
    ajv.getSchema(`openapi#/${encodeURI(at)}`) ?? ajv.compile({ $ref: `openapi#/${encodeURI(at)}` });
  assert.ok(checker(value), `${at}: ${ajv.errorsText(checker.errors)} in ${JSON.stringify(value)}`);
}
