import { invalidRequest } from '../http/validate.ts';

/** A message as a client of OpenAI sends it, its content made text. */
export interface Turn {
  role: 'system' | 'user' | 'assistant' | 'tool';
  text: string;
}

/** `developer` is what newer clients call the system. */
export function roleOf(role: string): Turn['role'] {
  if (role === 'developer') return 'system';
  return role === 'function' ? 'tool' : (role as Turn['role']);
}

const textTypes = new Set(['text', 'input_text', 'output_text', 'refusal']);

/** The text of a message's content, which is a text or a list of parts. Throws for parts that are no text. */
export function textOf(content: unknown, path: string): string {
  if (typeof content === 'string') return content;
  if (content === null || content === undefined) return '';
  if (!Array.isArray(content)) {
    throw invalidRequest([{ path, message: 'must be a text or a list of parts' }]);
  }
  return content
    .map((part: { type?: unknown; text?: unknown; refusal?: unknown } | null, index) => {
      const text = part?.text ?? part?.refusal;
      if (part !== null && textTypes.has(String(part?.type)) && typeof text === 'string') return text;
      throw invalidRequest([
        { path: `${path}.${index}`, message: 'must be a part of text; the agent takes no other here' },
      ]);
    })
    .join('');
}

/**
 * One message to the agent of what a client sent: what stands after the last answer is the message; before it come the
 * caller's instructions and, since a client of this protocol keeps the conversation itself, what was said so far.
 * Throws unless the last turn is the user's.
 */
export function messageOfTurns(turns: readonly Turn[], path: string): string {
  const last = turns.at(-1);
  if (last?.role !== 'user') {
    throw invalidRequest([{ path, message: 'must end with a message of the user' }]);
  }
  const instructions = turns.filter((turn) => turn.role === 'system').map((turn) => turn.text);
  const spoken = turns.filter((turn) => turn.role !== 'system');
  const answered = spoken.findLastIndex((turn) => turn.role !== 'user') + 1;
  const message = joined(spoken.slice(answered).map((turn) => turn.text));
  const sections = [
    section('Instructions of the caller', joined(instructions)),
    section('Earlier in this conversation', joined(spoken.slice(0, answered).map(line))),
  ].filter((text) => text !== '');
  if (sections.length === 0) return message;
  return joined([...sections, section('Message to answer', message)]);
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
