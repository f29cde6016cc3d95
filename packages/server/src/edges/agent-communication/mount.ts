import { DomainError, notFound } from '../../domain/errors.ts';
import type { HostCall, HostMount } from '../hosts/host-edge.ts';
import { jsonAnswer } from '../hosts/json-answer.ts';
import { parseQuery } from '../http/query.ts';
import { statusOf } from '../http/status.ts';
import { validate } from '../http/validate.ts';
import { nameOf, requireName } from './names.ts';
import { cancelRun, createRun, getRun, listRunEvents, resumeRun } from './runs.ts';
import { getMessage, getSession } from './sessions.ts';
import type { ErrorBody } from './shapes.ts';
import { agentsQuery } from './shapes.ts';

type Handler = (call: HostCall, params: string[]) => Promise<Response>;

/** All operations of the Agent Communication Protocol 0.2, by path; each with its methods. */
export const communicationRoutes: [path: RegExp, methods: Record<string, Handler>][] = [
  [/^\/ping$/, { GET: async (call) => jsonAnswer(call, {}) }],
  [/^\/agents$/, { GET: async (call) => listAgents(call) }],
  [/^\/agents\/([^/]+)$/, { GET: async (call, [name]) => getAgent(call, name!) }],
  [/^\/runs$/, { POST: async (call) => createRun(call) }],
  [
    /^\/runs\/([^/]+)$/,
    { GET: async (call, [id]) => getRun(call, id!), POST: async (call, [id]) => resumeRun(call, id!) },
  ],
  [/^\/runs\/([^/]+)\/cancel$/, { POST: async (call, [id]) => cancelRun(call, id!) }],
  [/^\/runs\/([^/]+)\/events$/, { GET: async (call, [id]) => listRunEvents(call, id!) }],
  [/^\/session\/([^/]+)$/, { GET: async (call, [id]) => getSession(call, id!) }],
  [
    /^\/session\/([^/]+)\/messages\/([^/]+)$/,
    { GET: async (call, [id, message]) => getMessage(call, id!, message!) },
  ],
];

/** The Agent Communication Protocol 0.2 at an agent's host (docs/agent-communication-protocol.md). */
export function agentCommunicationMount(): HostMount {
  return {
    name: 'agent-communication',
    owns: (path) => communicationRoutes.some(([pattern]) => pattern.test(path)),
    isPublic: (method, path) => method === 'GET' && path === '/ping',
    handlePublic: async (call) => jsonAnswer(call, {}),
    async handle(call) {
      const [pattern, methods] = communicationRoutes.find(([one]) => one.test(call.path))!;
      const handler = methods[call.method === 'HEAD' ? 'GET' : call.method];
      if (!handler) {
        const allowed = Object.keys(methods).join(', ');
        call.head['Allow'] = allowed;
        throw new DomainError('method_not_allowed', `This path takes ${allowed} only.`);
      }
      const params = pattern
        .exec(call.path)!
        .slice(1)
        .map((text) => decode(text).toLowerCase());
      return handler(call, params);
    },
    refuse: (error) => ({ body: errorBody(error) }),
  };
}

function errorBody(error: DomainError): ErrorBody {
  const status = statusOf[error.code];
  const code = error.code === 'not_found' ? 'not_found' : status >= 500 ? 'server_error' : 'invalid_input';
  return {
    code,
    message: error.message,
    data: { code: error.code, ...(error.details && { details: error.details }) },
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw notFound();
  }
}

function listAgents(call: HostCall): Response {
  const { limit, offset } = validate(agentsQuery, parseQuery(call.query), 'query');
  return jsonAnswer(call, { agents: [manifest(call)].slice(offset, offset + limit) });
}

function getAgent(call: HostCall, name: string): Response {
  requireName(call, name);
  return jsonAnswer(call, manifest(call));
}

function manifest({ agent, origin }: HostCall) {
  return {
    name: nameOf(agent),
    description: agent.description || agent.name,
    input_content_types: ['*/*'],
    output_content_types: ['*/*'],
    metadata: {
      annotations: { 'berth.dev': { name: agent.name } },
      created_at: agent.createdAt.toISOString(),
      updated_at: agent.updatedAt.toISOString(),
      links: [{ type: 'homepage', url: origin }],
      recommended_models: [agent.model],
    },
  };
}
