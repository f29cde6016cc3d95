import type { EventMessage } from '../../domain/events.ts';
import { shapeOf, tooManyValues } from '../../domain/json-shape.ts';
import { limits } from '../../domain/limits.ts';
import type { Message as StoredMessage } from '../../domain/nouns.ts';
import type { Artifact, MessagePart as OurPart, Part } from '../../domain/parts.ts';
import { atOnce } from '../../domain/slices.ts';
import { invalidRequest } from '../http/validate.ts';
import type { Message, MessageInput, MessagePart } from './shapes.ts';

const isText = (type: string) => /^text\/plain\b/i.test(type);
const isJson = (type: string) => /^application\/(?:[^;]+\+)?json\b/i.test(type);

/**
 * The input of a run as one message of ours. Several messages are a conversation that the client kept itself: then each
 * is told with who said it, but for those of a user alone.
 */
export function readInput(input: MessageInput[]): { content: string; parts: OurPart[] } {
  const parts: OurPart[] = [];
  const inner = new InnerJson();
  const isTold = input.some((message) => message.role !== 'user');
  const texts = input.map((message, index) => {
    const words: string[] = [];
    message.parts.forEach((part, at) => {
      const read = readPart(part, `input.${index}.parts.${at}`, inner);
      if (typeof read === 'string') words.push(read);
      else if (read) parts.push(read);
    });
    const text = words.join('');
    return isTold && text !== '' ? `${message.role}: ${text}` : text;
  });
  return { content: texts.filter((text) => text !== '').join('\n\n'), parts };
}

type PartInput = MessageInput['parts'][number];

/** A text, or a part; null for one that is empty. */
function readPart(part: PartInput, path: string, inner: InnerJson): string | OurPart | null {
  const { content, content_type: type, content_encoding: encoding, content_url: url } = part;
  const name = part.name ?? null;
  if (content !== undefined && url !== undefined)
    throw invalidRequest([
      { path: `${path}.content_url`, message: 'must not be given together with content' },
    ]);
  if (url !== undefined) return { kind: 'link', name, mediaType: type, url };
  if (content === undefined || content === '') return null;
  if (encoding === 'base64') return { kind: 'file', name, mediaType: type, bytes: content };
  if (isText(type) && name === null) return content;
  if (isJson(type) && name === null)
    return { kind: 'data', data: inner.parse(content, `${path}.content`), mediaType: type };
  return { kind: 'file', name, mediaType: type, bytes: Buffer.from(content).toString('base64') };
}

/** JSON in texts of a body: of all together there is as much as a body may have. */
class InnerJson {
  private left: number = limits.jsonValues;

  parse(text: string, path: string): unknown {
    const shape = atOnce(shapeOf(text, { depth: limits.jsonDepth, values: this.left }));
    if (shape.hasTooMany) throw invalidRequest([{ path, message: tooManyValues('The JSON in texts') }]);
    this.left -= shape.values;
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw invalidRequest([{ path, message: 'must be JSON, as its content_type says' }]);
    }
  }
}

/** The text of what a client says to a question. */
export function textOf(message: MessageInput): string {
  return message.parts.map((part) => part.content ?? '').join('');
}

export function partOf(part: Part, name: string | null = null): MessagePart {
  const own = part.kind === 'text' || part.kind === 'data' ? null : part.name;
  const named = own ?? name;
  const common = named === null ? {} : { name: named };
  switch (part.kind) {
    case 'text':
      return { ...common, content_type: 'text/plain', content: part.text };
    case 'data':
      return { ...common, content_type: part.mediaType, content: JSON.stringify(part.data) };
    case 'file':
      return { ...common, content_type: part.mediaType, content: part.bytes, content_encoding: 'base64' };
    case 'link':
      return { ...common, content_type: part.mediaType ?? 'text/html', content_url: part.url };
  }
}

/** What an agent has said and made; null when that is nothing, since a message has at least one part. */
export function answerOf(
  agentName: string,
  said: { text: string; at: string },
  artifacts: Iterable<Artifact>,
  completedAt: string | null,
): Message | null {
  const made = [...artifacts].flatMap(({ artifactId, name, parts }) =>
    parts.map((part) => partOf(part, name ?? artifactId)),
  );
  const parts = said.text === '' ? made : [partOf({ kind: 'text', text: said.text }), ...made];
  if (parts.length === 0) return null;
  return {
    role: `agent/${agentName}`,
    parts,
    created_at: said.at,
    ...(completedAt !== null && { completed_at: completedAt }),
  };
}

/** A message of the history. */
export function messageOf(message: StoredMessage | EventMessage, agentName: string): Message {
  const parts = 'extras' in message ? (message.extras?.parts ?? []) : (message.parts ?? []);
  const shown = parts.map((part) => partOf(part));
  const createdAt = new Date(message.createdAt).toISOString();
  return {
    role: message.role === 'user' ? 'user' : `agent/${agentName}`,
    parts:
      message.content === '' && shown.length > 0
        ? shown
        : [partOf({ kind: 'text', text: message.content }), ...shown],
    created_at: createdAt,
    completed_at: createdAt,
  };
}
