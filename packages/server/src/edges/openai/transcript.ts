import type { MessagePart } from '../../domain/parts.ts';
import { invalidRequest } from '../http/validate.ts';
import { partOf } from './content-parts.ts';

/** A message as a client of OpenAI sends it, its content made text. */
export interface Turn {
  role: 'system' | 'user' | 'assistant' | 'tool';
  text: string;
  /** Images, files and sounds. */
  parts: MessagePart[];
}

/** `developer` is what newer clients call the system. */
export function roleOf(role: string): Turn['role'] {
  if (role === 'developer') return 'system';
  return role === 'function' ? 'tool' : (role as Turn['role']);
}

const textTypes = new Set<unknown>(['text', 'input_text', 'output_text', 'refusal']);

/** A message's content, which is a text or a list of parts. Throws for parts that nothing is known of. */
export function contentOf(content: unknown, path: string): Pick<Turn, 'text' | 'parts'> {
  if (typeof content === 'string') return { text: content, parts: [] };
  if (content === null || content === undefined) return { text: '', parts: [] };
  if (!Array.isArray(content)) {
    throw invalidRequest([{ path, message: 'must be a text or a list of parts' }]);
  }
  let text = '';
  const parts: MessagePart[] = [];
  for (const [index, item] of (content as unknown[]).entries()) {
    const fields = (typeof item === 'object' && item !== null ? item : {}) as Record<string, unknown>;
    const piece = fields['text'] ?? fields['refusal'];
    const part = partOf(fields);
    if (textTypes.has(fields['type']) && typeof piece === 'string') text += piece;
    else if (part !== null) parts.push(part);
    else {
      throw invalidRequest([
        {
          path: `${path}.${index}`,
          message: 'must be a text, an image, a sound, or a file whose content is sent along',
        },
      ]);
    }
  }
  return { text, parts };
}

/**
 * One message to the agent of what a client sent: what stands after the last answer is the message; before it come the
 * caller's instructions and, since a client of this protocol keeps the conversation itself, what was said so far.
 * Of files only those of the message itself go along. Throws unless the last turn is the user's.
 */
export function messageOfTurns(
  turns: readonly Turn[],
  path: string,
): { content: string; parts: MessagePart[] } {
  const last = turns.at(-1);
  if (last?.role !== 'user') {
    throw invalidRequest([{ path, message: 'must end with a message of the user' }]);
  }
  const instructions = turns.filter((turn) => turn.role === 'system').map((turn) => turn.text);
  const spoken = turns.filter((turn) => turn.role !== 'system');
  const answered = spoken.findLastIndex((turn) => turn.role !== 'user') + 1;
  const asked = spoken.slice(answered);
  const message = joined(asked.map((turn) => turn.text));
  const parts = asked.flatMap((turn) => turn.parts);
  const sections = [
    section('Instructions of the caller', joined(instructions)),
    section('Earlier in this conversation', joined(spoken.slice(0, answered).map(line))),
  ].filter((text) => text !== '');
  if (sections.length === 0) return { content: message, parts };
  return { content: joined([...sections, section('Message to answer', message)]), parts };
}

/** What a conversation that the agent remembers has not heard yet: all after its last answer. */
export function newTurns(turns: readonly Turn[]): Turn[] {
  return turns.slice(turns.findLastIndex((turn) => turn.role === 'assistant') + 1);
}

const joined = (texts: readonly string[]): string => texts.filter((text) => text !== '').join('\n\n');

function section(title: string, text: string): string {
  return text === '' ? '' : `[${title}]\n${text}`;
}

function line({ role, text }: Turn): string {
  if (text === '') return '';
  return `${role === 'tool' ? 'Tool' : role === 'user' ? 'User' : 'Assistant'}: ${text}`;
}
