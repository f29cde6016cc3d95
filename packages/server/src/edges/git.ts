import type { IncomingMessage, ServerResponse } from 'node:http';
import { requireEdit } from '../domain/access.ts';
import { DomainError, notFound, type ErrorCode } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { Agent } from '../domain/nouns.ts';
import type { GitService, GitTarget, GitWire } from '../domain/ports/repos.ts';
import type { AgentsService, AuthService, RateLimitService } from '../services/api.ts';

export interface GitEdgeOptions {
  services: { auth: AuthService; agents: AgentsService; rateLimit: RateLimitService };
  wire: GitWire;
  log: Log;
  /** For the limit on failed authentication; the peer of the connection unless there is a trusted proxy. */
  clientAddress?: (request: IncomingMessage) => string;
}

/** git shows a text answer in the terminal; it cannot read our JSON errors. */
const statuses: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  key_missing: 401,
  key_invalid: 401,
  scope_insufficient: 403,
  binding_insufficient: 403,
  not_found: 404,
  method_not_allowed: 405,
  rate_limited: 429,
  unavailable: 503,
};

/** Serves `/git/{agentId}.git` (gitprotocol-http): the listener mounts it by its prefix, before the app. */
export function createGitEdge(options: GitEdgeOptions): {
  prefix: string;
  handle(request: IncomingMessage, response: ServerResponse): Promise<void>;
} {
  return {
    prefix: '/git/',
    async handle(request, response) {
      if (!response.hasHeader('X-Request-Id')) response.setHeader('X-Request-Id', newId());
      try {
        const target = await admit(options, request, response);
        await options.wire.handle(target, request, response);
      } catch (error) {
        refuse(options.log, error, response);
      }
    },
  };
}

/** Checks in the order of every other edge: the key, its rate, what it may see, what it may do. */
async function admit(
  { services, clientAddress }: GitEdgeOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<GitTarget> {
  const address = clientAddress?.(request) ?? request.socket.remoteAddress ?? 'unknown';
  const value = credentials(request.headers.authorization);
  const caller = await services.auth.authenticate(value).catch((error: unknown) => {
    // git asks once without credentials, as a matter of course; that is no failed attempt.
    const failed = value !== null && error instanceof DomainError && error.code === 'key_invalid';
    const waitSeconds = failed ? services.rateLimit.authFailure(address) : null;
    if (waitSeconds === null) throw error;
    throw new DomainError(
      'rate_limited',
      `Too many requests without a valid key; try again in ${waitSeconds} s.`,
      {
        retryAfterSeconds: waitSeconds,
      },
    );
  });
  const rate = services.rateLimit.take(caller.keyId, caller.rateLimit);
  response.setHeader('RateLimit-Policy', `"default";q=${rate.quota};w=${rate.windowSeconds}`);
  response.setHeader('RateLimit', `"default";r=${rate.remaining};t=${rate.resetSeconds}`);
  if (!rate.allowed) {
    throw new DomainError('rate_limited', 'Too many requests with this key; try again later.', {
      retryAfterSeconds: rate.retryAfterSeconds,
    });
  }
  const target = readTarget(request, response);
  const agent = await services.agents.get(caller, target.agentId);
  requireEdit(caller);
  if (target.service === 'git-receive-pack') requireHosted(agent);
  return { ...target, orgId: agent.orgId };
}

function requireHosted(agent: Agent): void {
  if (agent.externalGitUrl === null) return;
  throw new DomainError(
    'scope_insufficient',
    `This agent is deployed from ${agent.externalGitUrl}. Push there, then ask for a deployment.`,
  );
}

/** The key as the password of any user, as git sends it, or as a bearer token. Null: none was given. */
function credentials(header: string | undefined): string | null {
  const match = /^(basic|bearer) +(\S+) *$/i.exec(header ?? '');
  if (!match) return header === undefined ? null : header;
  if (match[1]!.toLowerCase() === 'bearer') return match[2]!;
  const pair = Buffer.from(match[2]!, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  const [user, password] = colon === -1 ? [pair, ''] : [pair.slice(0, colon), pair.slice(colon + 1)];
  // Some tools can send only a user name.
  return password === '' ? user || null : password;
}

/** Throws `not_found` for whatever is not one of the four requests of the smart protocol. */
function readTarget(request: IncomingMessage, response: ServerResponse): Omit<GitTarget, 'orgId'> {
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const match = /^\/git\/([^/]+?)(?:\.git)?\/(info\/refs|git-upload-pack|git-receive-pack)$/.exec(path);
  if (!match || !isId(match[1]!)) throw notFound();
  const agentId = match[1]!;
  const advertise = match[2] === 'info/refs';
  const wanted = advertise ? 'GET' : 'POST';
  if (request.method !== wanted) {
    response.setHeader('Allow', wanted);
    throw new DomainError('method_not_allowed', `Use ${wanted} here.`);
  }
  const service = advertise ? new URLSearchParams(query).get('service') : match[2]!;
  if (!isService(service)) {
    throw new DomainError(
      'invalid_request',
      'Only the smart HTTP protocol is served; use a git of this decade.',
    );
  }
  if (!advertise && request.headers['content-type'] !== `application/x-${service}-request`) {
    throw new DomainError('invalid_request', `The content type must be application/x-${service}-request.`);
  }
  return { agentId, service, advertise };
}

function isService(text: string | null): text is GitService {
  return text === 'git-upload-pack' || text === 'git-receive-pack';
}

function refuse(log: Log, error: unknown, response: ServerResponse): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const known = error instanceof DomainError ? error : null;
  const status = known ? (statuses[known.code] ?? 500) : 500;
  if (status === 500) log.error('git request failed', { error });
  if (status === 401) response.setHeader('WWW-Authenticate', 'Basic realm="berth"');
  if (known?.retryAfterSeconds !== undefined) {
    response.setHeader('Retry-After', String(Math.max(1, Math.ceil(known.retryAfterSeconds))));
  }
  // A body that nobody reads keeps the connection from serving another request.
  response.setHeader('Connection', 'close');
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' });
  response.end(`${known && status !== 500 ? known.message : 'Internal error.'}\n`);
}
