import { z } from 'zod';
import { limits } from '../domain/limits.ts';
import type { Reply, Route, Tag } from './http/route.ts';
import { paramInfo } from './http/params.ts';
import { errorResponses, errorSchema, errorsOf } from './openapi-errors.ts';
import { routes } from './routes.ts';
import { models } from './schemas/basics.ts';

export interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description: string;
  parameters: Parameter[];
  requestBody?: { required: boolean; content: Record<string, Media> };
  responses: Record<string, ResponseObject | { $ref: string }>;
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  description: string;
  schema: Schema;
  example?: string;
}

export interface Media {
  schema: Schema;
  example?: unknown;
}

export interface ResponseObject {
  description: string;
  headers?: Record<string, unknown>;
  content?: Record<string, Media>;
}

export interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: string[];
  [keyword: string]: unknown;
}

export interface OpenApi {
  openapi: string;
  info: { title: string; version: string; description: string };
  servers: { url: string }[];
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema>; [kind: string]: unknown };
  [field: string]: unknown;
}

const tagTexts: Record<Tag, string> = {
  'Quick start': 'The two calls to begin with.',
  Agents: 'A git repository plus a model, with an address of its own.',
  'API keys': 'Who may do what. A value is told once, when the key is made.',
  Secrets: 'Values for use inside an agent’s sandbox. They are never returned.',
  Deployments: 'The versions of an agent; roll back by activating an earlier one.',
  Conversations: 'What users and an agent said to each other.',
  Runs: 'A run is one turn. In one conversation runs execute one after another.',
  Events: 'Everything that happens in a conversation, to read or to follow live.',
  Egress:
    'What the sandbox of an agent may reach on the network, what was refused, and how many bytes passed.',
  Channels: 'Webhooks from chat, mail and other systems, what became of them, and the answers.',
  Schedules: 'Messages that an agent gets by the clock, and what became of each.',
  'Webhook endpoints': 'Where the organisation is told of what happens, and what became of each telling.',
  Sandboxes: 'Where agents run: one for each agent, started on demand, stopped when idle.',
  'Sandbox files': 'The files of an agent, whether its sandbox runs or not.',
  Snapshots: 'The files of an agent at a moment, to go back to or to give to another agent.',
  Budgets: 'Caps on what is spent for models in a day or a month.',
  Limits: 'What the key may still do.',
};

const intro = `Send an API key with each request: \`Authorization: Bearer svc_live_…\`. Bodies are JSON in UTF-8, at most ${limits.bodyBytes} bytes; unknown fields in a request are refused, and unknown fields in an answer are to be ignored, since more may be added. Lists are newest first: \`limit\` (1 to ${limits.pageMax}, default ${limits.pageDefault}) and \`cursor\`. Each POST takes an \`Idempotency-Key\`: the same request again within ${limits.idempotencyHours} hours gets the first answer again. Where the service was killed in the middle of what cannot be undone, it gets 409 \`idempotency_interrupted\`, and nothing is done again. Times are ISO 8601 in UTC, money is a decimal text in US dollars.`;

/** The OpenAPI 3.1 document of all routes, made from what they check by. */
export function buildOpenapi(baseUrl: string): OpenApi {
  const paths: OpenApi['paths'] = {};
  for (const route of routes) (paths[route.path] ??= {})[route.method] = operation(route);
  return {
    openapi: '3.1.0',
    info: { title: 'Berth API', version: '1', description: intro },
    servers: [{ url: baseUrl }],
    security: [{ apiKey: [] }],
    tags: Object.entries(tagTexts).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: 'http', scheme: 'bearer', description: 'An API key: `svc_live_` and 49 characters.' },
      },
      headers: sharedHeaders,
      responses: errorResponses(),
      schemas: { Error: errorSchema, ...schemas() },
    },
  };
}

export function openapiText(baseUrl: string): string {
  return `${JSON.stringify(buildOpenapi(baseUrl), null, 2)}\n`;
}

const text = { type: 'string' };

const sharedHeaders = {
  RequestId: { description: 'Names this request in our logs.', schema: text },
  RateLimit: { description: 'What is left: `"default";r=188;t=34`.', schema: text },
  RateLimitPolicy: { description: 'The limit: `"default";q=600;w=60`.', schema: text },
  RetryAfter: { description: 'Seconds to wait before the next try.', schema: { type: 'integer' } },
  IdempotentReplayed: { description: '`true` when this is the stored first answer.', schema: text },
};

/** `io: 'input'` leaves answers open for new fields; requests are strict by themselves. */
function schemas(): Record<string, Schema> {
  const made = z.toJSONSchema(models, { uri: (id) => `#/components/schemas/${id}`, io: 'input' });
  const result: Record<string, Schema> = {};
  for (const [id, schema] of Object.entries(made.schemas).sort(([a], [b]) => (a < b ? -1 : 1))) {
    result[id] = without(schema as Schema, ['$schema', '$id', 'id']);
  }
  return result;
}

function without(schema: Schema, keywords: string[]): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !keywords.includes(keyword)));
}

const reference = (schema: z.ZodType): Schema => ({ $ref: `#/components/schemas/${models.get(schema)!.id}` });

function operation(route: Route): Operation {
  const responses: Operation['responses'] = {};
  for (const [status, reply] of Object.entries(route.replies)) responses[status] = success(route, reply);
  const made: Operation = {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    description: `${route.description}\n\n${accessText(route)}`,
    parameters: [...pathParameters(route), ...queryParameters(route), ...headerParameters(route)],
    responses: { ...responses, ...errorsOf(route) },
  };
  if (models.has(route.body)) {
    made.requestBody = {
      required: !route.body.safeParse({}).success,
      content: { 'application/json': { schema: reference(route.body), example: route.bodyExample } },
    };
  }
  if (route.rawBody) {
    const content = Object.entries(route.rawBody).map(([type, description]) => [
      type,
      bytesMedia(description),
    ]);
    made.requestBody = { required: false, content: Object.fromEntries(content) as Record<string, Media> };
  }
  return made;
}

function bytesMedia(description: string): Media {
  return { schema: { type: 'string', format: 'binary', description } };
}

function accessText(route: Route): string {
  const scope = route.access.endsWith('edit') ? '`edit`' : '`use` or `edit`';
  const org = route.access.startsWith('org-') ? ' that is org-bound' : '';
  return `Needs a key with the scope ${scope}${org}.`;
}

function success(route: Route, reply: Reply): ResponseObject {
  const headers: Record<string, unknown> = {
    'X-Request-Id': { $ref: '#/components/headers/RequestId' },
    RateLimit: { $ref: '#/components/headers/RateLimit' },
    'RateLimit-Policy': { $ref: '#/components/headers/RateLimitPolicy' },
  };
  if (route.method === 'post')
    headers['Idempotent-Replayed'] = { $ref: '#/components/headers/IdempotentReplayed' };
  for (const [name, description] of Object.entries(reply.headers ?? {})) {
    headers[name] = { description, schema: text };
  }
  const content: Record<string, Media> = {};
  if (reply.schema) content['application/json'] = { schema: reference(reply.schema), example: reply.example };
  for (const [type, about] of Object.entries(reply.media ?? {})) content[type] = bytesMedia(about);
  if (Object.keys(content).length === 0) return { description: reply.description, headers };
  if (reply.streamExample) {
    content['text/event-stream'] = {
      schema: { type: 'string', description: '`id` is the seq, `event` the type, `data` one Event as JSON.' },
      example: reply.streamExample,
    };
  }
  return { description: reply.description, headers, content };
}

function pathParameters(route: Route): Parameter[] {
  return [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
    const info = paramInfo[name]!;
    const schema: Schema = info.kind === 'id' ? { type: 'string', format: 'uuid' } : { type: 'string' };
    return { name, in: 'path', required: true, description: info.description, schema, example: info.example };
  });
}

function queryParameters(route: Route): Parameter[] {
  return Object.entries(route.query.shape).map(([name, field]) => {
    const { description = '', ...schema } = z.toJSONSchema(field, { io: 'input' }) as Schema;
    return { name, in: 'query', required: false, description, schema: without(schema, ['$schema']) };
  });
}

function headerParameters(route: Route): Parameter[] {
  const headers = [...(route.requestHeaders ?? [])];
  if (route.method === 'post') {
    headers.push({
      name: 'Idempotency-Key',
      description: `1 to ${limits.idempotencyKeyChars} printable ASCII characters that name this request; send it again with the same to be sure that it is done once.`,
      example: 'order-4711',
    });
  }
  return headers.map(({ name, description, example }) => ({
    name,
    in: 'header',
    required: false,
    description,
    schema: { type: 'string' },
    example,
  }));
}
