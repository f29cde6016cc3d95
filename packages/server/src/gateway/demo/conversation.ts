import { WireError } from '../wires.ts';

/** What the guide looks at in a Chat Completions request. */
export interface Conversation {
  /** The system or developer text. */
  instructions: string;
  messageCount: number;
  /** The last thing that the person wrote. */
  question: string;
  /** Results of the tools that were called since then, oldest first. */
  results: string[];
  /** What was shown of the present answer before it was cut off; '' when it was not. */
  said: string;
  /** Makes a call of the harness's shell; null = the request offers none. */
  shell: { name: string; argumentsFor: (command: string) => object } | null;
}

type Fields = Record<string, unknown>;

const shellNames = /^(?:bash|shell|exec|execute|terminal|run_shell_command|run_command|execute_command)$/i;

/** Throws WireError when the body is no request of this wire. */
export function readConversation(body: Buffer): Conversation {
  const request = parse(body);
  const messages = request['messages'];
  if (!Array.isArray(messages) || !messages.every(isObject)) {
    throw new WireError('bad_request', 'The field "messages" must be a list of objects.');
  }
  const last = messages.findLastIndex(
    (message) => message['role'] === 'user' && !isNotice(textOf(message['content'])),
  );
  const sinceResult = messages.slice(Math.max(last, messages.findLastIndex(isResult)) + 1);
  const instructions = messages.filter(
    (message) => message['role'] === 'system' || message['role'] === 'developer',
  );
  return {
    instructions: instructions.map((message) => textOf(message['content'])).join('\n'),
    messageCount: messages.length - instructions.length,
    question: last === -1 ? '' : textOf(messages[last]?.['content']),
    results: messages
      .slice(last + 1)
      .filter((message) => message['role'] === 'tool')
      .map((message) => textOf(message['content'])),
    said: sinceResult
      .filter((message) => message['role'] === 'assistant')
      .map((message) => textOf(message['content']))
      .join(''),
    shell: findShell(request['tools']),
  };
}

/** That it is an object is known. */
function parse(body: Buffer): Fields {
  try {
    return JSON.parse(body.toString('utf8')) as Fields;
  } catch {
    throw new WireError('bad_request', 'The body is not valid JSON: a value cannot be read.');
  }
}

const isResult = (message: Fields): boolean => message['role'] === 'tool';

/**
 * The harness tells a model so that it takes up an interrupted turn, after the calls that were made, or an answer that
 * was cut off. To these rules it says nothing: they look at the request and at what there is.
 */
function isNotice(text: string): boolean {
  return (
    text.startsWith('The service was interrupted while you worked on this request.') ||
    text.startsWith('Your answer was cut off by a technical interruption.')
  );
}

/** Content is a text or a list of parts; parts that are no text say nothing to the guide. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part: unknown) => (isObject(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}

function findShell(tools: unknown): Conversation['shell'] {
  if (!Array.isArray(tools)) return null;
  for (const tool of tools as unknown[]) {
    const definition = isObject(tool) && isObject(tool['function']) ? tool['function'] : null;
    const name = definition?.['name'];
    if (typeof name !== 'string' || !shellNames.test(name)) continue;
    const parameters = isObject(definition?.['parameters']) ? definition['parameters'] : {};
    const properties = isObject(parameters['properties']) ? parameters['properties'] : {};
    const field = 'command' in properties || !('cmd' in properties) ? 'command' : 'cmd';
    const schema = properties[field];
    // Some harnesses take an argument vector in place of a command line.
    const isVector = isObject(schema) && schema['type'] === 'array';
    return { name, argumentsFor: (command) => ({ [field]: isVector ? ['sh', '-c', command] : command }) };
  }
  return null;
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
