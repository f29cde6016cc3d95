import { DomainError } from '../../domain/errors.ts';
import type { Accepted, Caller, SendInput, Services } from '../../services/api.ts';

/**
 * Sends to the conversation that a context id names (`''` = a new one); it begins when there is none. For most messages
 * that is known without a look (docs/decisions/0220): a conversation that was deleted since is not found, and looked for.
 */
export async function sendInContext(
  services: Pick<Services, 'a2a' | 'runs'>,
  caller: Caller,
  contextId: string,
  input: Omit<SendInput, 'conversationId' | 'mayBegin'>,
): Promise<Accepted> {
  if (contextId === '') return services.runs.send(caller, { ...input, conversationId: null });
  const known = services.a2a.knownContext(caller, input.agentId, contextId);
  if (known !== null) {
    const accepted = await services.runs
      .send(caller, { ...input, conversationId: known })
      .catch((error: unknown) => {
        if (error instanceof DomainError && error.code === 'not_found') return null;
        throw error;
      });
    if (accepted) return accepted;
  }
  const conversationId = await services.a2a.resolveContext(caller, input.agentId, contextId);
  return services.runs.send(caller, { ...input, conversationId, mayBegin: true });
}
