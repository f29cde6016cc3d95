/**
 * What a sealed row is bound to (the authenticated context of domain/box.ts). One place, since the rotation of the
 * key-encryption key has to name the same context as whoever sealed the row.
 */
export const secretContext = (agentId: string, key: string): string => `secret:${agentId}:${key}`;

export const brokerContext = (sandboxId: string): string => `broker:${sandboxId}`;

export const idempotencyContext = (keyId: string, idempotencyKey: string): string =>
  `idempotency:${keyId}:${idempotencyKey}`;

export const pushConfigContext = (id: string): string => `a2a-push-config:${id}`;

export const signingKeyContext = (id: string): string => `a2a-signing-key:${id}`;
export const webhookSecretContext = (endpointId: string, name: string): string =>
  `webhook-endpoint:${endpointId}:${name}`;
export const channelContext = (channelId: string, name: string): string => `channel:${channelId}:${name}`;
