import { specTypeSchemas } from '@modelcontextprotocol/server';
import type { DomainError } from '../../domain/errors.ts';
import { invalidRequest } from '../http/validate.ts';

/** Of the requests that are answered here: to the SDK's handlers a request of another shape is a failure of their own. */
const shapes: Record<string, (typeof specTypeSchemas)[keyof typeof specTypeSchemas]> = {
  initialize: specTypeSchemas.InitializeRequest,
  ping: specTypeSchemas.PingRequest,
  'tools/list': specTypeSchemas.ListToolsRequest,
  'tools/call': specTypeSchemas.CallToolRequest,
  'prompts/list': specTypeSchemas.ListPromptsRequest,
  'prompts/get': specTypeSchemas.GetPromptRequest,
  'resources/list': specTypeSchemas.ListResourcesRequest,
  'resources/templates/list': specTypeSchemas.ListResourceTemplatesRequest,
  'resources/read': specTypeSchemas.ReadResourceRequest,
};

/** What is wrong with the params of a request; null for all else, of which the SDK tells what is wrong. */
export function wrongParams(body: unknown): DomainError | null {
  if (typeof body !== 'object' || body === null || !('method' in body) || !('id' in body)) return null;
  const { method } = body;
  if (method === 'initialize' && saysItsRevision(body)) return null;
  const shape = typeof method === 'string' && Object.hasOwn(shapes, method) ? shapes[method] : undefined;
  const issues = shape?.['~standard'].validate(body).issues ?? [];
  const details = issues.flatMap(({ path = [], message }) => {
    const names = path.map((one) => String(typeof one === 'object' ? one.key : one));
    if (names[0] !== 'params') return [];
    return [{ path: names.join('.').slice(0, 200), message: message.replace(/^Invalid input: /, '') }];
  });
  return details.length === 0 ? null : invalidRequest(details.slice(0, 20));
}

/** A request of 2026-07-28, which knows no `initialize`: what is wrong with one is that there is no such method. */
function saysItsRevision(body: object): boolean {
  const { params } = body as { params?: { _meta?: unknown } };
  const meta = params?._meta;
  return typeof meta === 'object' && meta !== null && 'io.modelcontextprotocol/protocolVersion' in meta;
}
