import { notFound } from '../../domain/errors.ts';
import type { Message } from '../../domain/nouns.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { jsonAnswer } from '../hosts/json-answer.ts';
import { messageOf } from './messages.ts';
import { nameOf } from './names.ts';

/** So many messages, the newest, are named in the history. */
const HISTORY_MESSAGES = 1_000;

/** The conversation that a session of this agent is, by its own id or one that a client made up; null: there is none. */
export function conversationOf(
  { services, caller, agent }: HostCall,
  sessionId: string,
): Promise<string | null> {
  return services.a2a.findContext(caller, agent.id, sessionId);
}

/** `GET /session/{session_id}`: the history is addresses of messages, oldest first. */
export async function getSession(call: HostCall, sessionId: string): Promise<Response> {
  const found: string[] = [];
  for await (const { id } of messages(call, sessionId)) {
    found.push(`${call.origin}/session/${sessionId}/messages/${id}`);
    if (found.length >= HISTORY_MESSAGES) break;
  }
  return jsonAnswer(call, { id: sessionId, history: found.reverse() });
}

/** `GET /session/{session_id}/messages/{message_id}`: what an address in the history leads to. */
export async function getMessage(call: HostCall, sessionId: string, messageId: string): Promise<Response> {
  for await (const message of messages(call, sessionId)) {
    if (message.id === messageId) return jsonAnswer(call, messageOf(message, nameOf(call.agent)));
    // Newest first, and ids are in order of time.
    if (message.id < messageId) break;
  }
  throw notFound();
}

async function* messages(call: HostCall, sessionId: string): AsyncGenerator<Message> {
  const { services, caller } = call;
  const conversationId = await conversationOf(call, sessionId);
  if (conversationId === null) throw notFound();
  let cursor: string | null = null;
  do {
    const page: { items: Message[]; nextCursor: string | null } = await services.conversations.messages(
      caller,
      conversationId,
      { limit: 100, cursor },
    );
    yield* page.items;
    cursor = page.nextCursor;
  } while (cursor !== null);
}
