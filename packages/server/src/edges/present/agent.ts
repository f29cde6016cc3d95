import type { Agent, ApiKey, Deployment, SecretName } from '../../domain/nouns.ts';
import type { Addresses, KnownJson } from '../http/route.ts';

export const timeOrNull = (date: Date | null): string | null => date?.toISOString() ?? null;

/** The agent's own address is https whenever the service's is (API contract, section 5). */
export function agentUrl(agentId: string, addresses: Addresses): string {
  const scheme = addresses.baseUrl.startsWith('https:') ? 'https' : 'http';
  return `${scheme}://${agentId}.${addresses.appDomain}`;
}

/**
 * Where an agent speaks A2A over gRPC: `host:port` without a scheme, as its clients take it. Null: that is not served.
 */
export function grpcTarget(agentId: string, { appDomain, a2aGrpcPort }: Addresses): string | null {
  if (a2aGrpcPort === undefined) return null;
  return `${agentId}.${appDomain.replace(/:\d+$/, '')}:${a2aGrpcPort}`;
}

export function agentOf(agent: Agent, addresses: Addresses) {
  return {
    id: agent.id,
    name: agent.name,
    url: agentUrl(agent.id, addresses),
    description: agent.description,
    model: agent.model,
    gitUrl: agent.externalGitUrl ?? `${addresses.baseUrl}/git/${agent.id}.git`,
    deploymentId: agent.deploymentId,
    allowedOrigins: agent.allowedOrigins,
    createdAt: agent.createdAt.toISOString(),
    updatedAt: agent.updatedAt.toISOString(),
  };
}

const texts = new WeakMap<Agent, KnownJson & { addresses: Addresses }>();

/** The body of an answer that shows this agent; made once for each object, which is never changed. */
export function agentJson(agent: Agent, addresses: Addresses): KnownJson {
  let text = texts.get(agent);
  if (text?.addresses !== addresses) {
    const json = JSON.stringify({ agent: agentOf(agent, addresses) });
    text = { addresses, json, bytes: Buffer.byteLength(json) };
    texts.set(agent, text);
  }
  return text;
}

export function apiKeyOf(key: ApiKey) {
  return {
    id: key.id,
    name: key.name,
    prefix: key.prefix,
    scope: key.scope,
    binding: key.binding,
    agentId: key.agentId,
    lastUsedAt: timeOrNull(key.lastUsedAt),
    expiresAt: timeOrNull(key.expiresAt),
    createdAt: key.createdAt.toISOString(),
  };
}

export function secretOf(secret: SecretName) {
  return {
    key: secret.key,
    kind: secret.kind,
    hosts: secret.hosts,
    updatedAt: secret.updatedAt.toISOString(),
  };
}

export function deploymentOf(deployment: Deployment) {
  return {
    id: deployment.id,
    agentId: deployment.agentId,
    commit: deployment.commit,
    ref: deployment.ref,
    source: deployment.source,
    status: deployment.status,
    error: deployment.error,
    createdAt: deployment.createdAt.toISOString(),
    activatedAt: timeOrNull(deployment.activatedAt),
  };
}
