import { requireClientMessageId, requireMetadata, requireParts } from '../domain/parts.ts';
import type { MessageExtras } from '../domain/parts.ts';
import type { SendInput } from './api.ts';

/** What a send carries beside its text; null = nothing. Throws `invalid_request`. */
export function readExtras(input: SendInput): MessageExtras | null {
  const { parts = [], clientMessageId = null, metadata = null } = input;
  if (parts.length === 0 && clientMessageId === null && metadata === null) return null;
  requireParts('parts', parts);
  if (clientMessageId !== null) requireClientMessageId('clientMessageId', clientMessageId);
  if (metadata !== null) requireMetadata('metadata', metadata);
  return { parts, clientMessageId, metadata };
}
