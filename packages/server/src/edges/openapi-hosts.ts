import type { HostOperation } from './hosts/host-operations.ts';
import { hostOperations, protocols } from './hosts/host-operations.ts';

const intro =
  'What each agent serves at an address of its own, beside a web server that it may have. ' +
  'Bodies and errors are those of the protocols, which their own documents describe; the calls of the service itself are in `/openapi.json`.';

/** The OpenAPI 3.1 document of the calls at agents' hosts. Their bodies belong to the protocols. */
export function hostOpenapi(appDomain: string, scheme: 'http' | 'https') {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of hostOperations)
    (paths[operation.path] ??= {})[operation.method] = describe(operation);
  return {
    openapi: '3.1.0',
    info: { title: "Berth: an agent's own address", version: '1', description: intro },
    servers: [
      {
        url: `${scheme}://{agentId}.${appDomain}`,
        variables: {
          agentId: { default: '00000000-0000-0000-0000-000000000000', description: 'The id of the agent' },
        },
      },
    ],
    security: [{ apiKey: [] }, { apiKeyHeader: [] }],
    tags: Object.entries(protocols).map(([name, url]) => ({ name, externalDocs: { url } })),
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: 'http', scheme: 'bearer', description: 'An API key with the scope `use`.' },
        apiKeyHeader: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
    },
  };
}

export function hostOpenapiText(appDomain: string, scheme: 'http' | 'https'): string {
  return `${JSON.stringify(hostOpenapi(appDomain, scheme), null, 2)}\n`;
}

const anyJson = { 'application/json': { schema: {} } };
const events = { 'text/event-stream': { schema: { type: 'string' } } };

function describe({ protocol, method, path, summary, isPublic, streams, status = 200 }: HostOperation) {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!);
  const content = streams === 'always' ? events : streams === 'asked' ? { ...anyJson, ...events } : anyJson;
  return {
    operationId: `${method}${path.replace(/[^A-Za-z0-9]+(\w?)/g, (_, next: string) => next.toUpperCase())}`,
    tags: [protocol],
    summary,
    ...(isPublic && { security: [] }),
    ...(names.length > 0 && {
      parameters: names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    }),
    ...(method === 'post' && { requestBody: { content: anyJson } }),
    responses: {
      [status]: { description: summary, ...(status !== 204 && { content }) },
      default: { description: "An error in the protocol's own form", content: anyJson },
    },
  };
}
