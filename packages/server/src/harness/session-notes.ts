import { isRecord } from './clean.ts';
import type { Notes } from './control/endpoint.ts';

/**
 * What the launcher keeps of a conversation, so that the next process of the service can go on with its turn. It comes
 * back from inside the sandbox: it can say wrong things of the agent's own conversations, and nothing of others, since
 * whoever reads it compares it with the database.
 */
export interface SessionNote {
  conversationId: string;
  sessionId: string;
  turn: {
    runId: string;
    attempt: number;
    /** JSON-RPC id of `session/prompt`. */
    promptId: number;
    /** A position in the prompt's line: a launcher that had received less never began it. */
    promptEnd: number;
    /**
     * The position up to which the harness had told when the prompt was written. What ends before it is of earlier turns of the
     * session, and comes again where it was not acknowledged yet: it is none of this turn's.
     */
    toldBefore: number;
    /** Open questions: our id of each, and its JSON-RPC id. */
    asked: Record<string, string | number>;
  } | null;
}

const maxAsked = 100;

export const sessionNote = (conversationId: string): string => `session:${conversationId}`;

export function readNotes(notes: Notes): SessionNote[] {
  return [...notes].flatMap(([key, value]) => {
    const note = key.startsWith('session:') && isRecord(value) ? readNote(key.slice(8), value) : null;
    return note ? [note] : [];
  });
}

function readNote(conversationId: string, value: Record<string, unknown>): SessionNote | null {
  const { sessionId, turn } = value;
  if (typeof sessionId !== 'string' || sessionId === '' || sessionId.length > 500) return null;
  return { conversationId, sessionId, turn: isRecord(turn) ? readTurn(turn) : null };
}

function readTurn(turn: Record<string, unknown>): SessionNote['turn'] {
  const { runId, attempt, promptId, promptEnd, toldBefore, asked } = turn;
  if (typeof runId !== 'string' || !isRecord(asked)) return null;
  if (!Number.isSafeInteger(attempt) || !Number.isSafeInteger(promptId) || !Number.isSafeInteger(promptEnd))
    return null;
  const entries = Object.entries(asked).filter(
    (entry): entry is [string, string | number] =>
      typeof entry[1] === 'string' || typeof entry[1] === 'number',
  );
  return {
    runId,
    attempt: attempt as number,
    promptId: promptId as number,
    promptEnd: promptEnd as number,
    // Notes of earlier versions have none.
    toldBefore: Number.isSafeInteger(toldBefore) ? (toldBefore as number) : 0,
    asked: Object.fromEntries(entries.slice(0, maxAsked)),
  };
}
