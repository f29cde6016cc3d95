// An agent without a model that does what test kits of agent protocols ask for. The word that decides stands at the
// beginning of the message's id, or else of its text; the longest that fits counts. Any other message is answered with
// what it holds.
import { openPeer } from './peer.mjs';

const text = (value) => ({ type: 'text', text: value });
const file = {
  type: 'resource',
  resource: { uri: 'berth:output.txt', mimeType: 'text/plain', blob: 'dGNr' },
};
const link = {
  type: 'resource_link',
  uri: 'https://example.com/output.txt',
  name: 'output.txt',
  mimeType: 'text/plain',
};

/** What each word does in a turn. Undefined = the turn ends as done; a text = the agent's answer. */
const scenes = {
  'tck-complete-task': () => 'Hello from TCK',
  'tck-artifact-text': (turn) => turn.artifact(text('Generated text content')),
  'tck-artifact-file': (turn) => turn.artifact(file),
  'tck-artifact-file-url': (turn) => turn.artifact(link),
  // A chunk needs a content; the data stands beside it.
  'tck-artifact-data': (turn) => turn.artifact(text(''), { data: { key: 'value', count: 42 } }),
  'tck-message-response': (turn) => turn.plainMessage('Direct message response'),
  'tck-input-required': (turn) => askAgain(turn, 'tck-input-required', {}),
  'tck-auth-required': (turn) => askAgain(turn, 'tck-auth-required', { purpose: 'authorization' }),
  'tck-multi-turn': multiTurn,
  'tck-reject-task': (turn) => turn.refuse('rejected'),
  'tck-task-failure': () => {
    throw new Error('The task failed, as it was asked to.');
  },
  'tck-cancel': (turn) => turn.wait(600_000),
  'tck-delayed-complete': async (turn) => {
    await turn.wait(2_000);
    return 'Done after delay';
  },
  'tck-long-running': async (turn) => {
    await turn.wait(1_000);
    turn.artifact(text('long running result'));
  },
  'tck-stream-001': (turn) => turn.artifact(text('Stream hello from TCK')),
  'tck-stream-002': () => undefined,
  'tck-stream-003': (turn) => turn.artifact(text('Stream task lifecycle')),
  'tck-stream-ordering-001': (turn) => turn.artifact(text('Ordered output')),
  'tck-stream-artifact-text': (turn) => turn.artifact(text('Streamed text content')),
  'tck-stream-artifact-file': (turn) => turn.artifact(file),
  'tck-stream-artifact-chunked': (turn) => chunked(turn, ['chunk-1 ', 'chunk-2']),
  'tck-stream-basic': (turn) => turn.artifact(text('streamed content')),
  'tck-stream-chunked': (turn) => chunked(turn, ['chunk one ', 'chunk two ', 'chunk three']),
  // Long enough for a client to go away and to subscribe anew.
  'test-resubscribe-message-id': (turn) => turn.wait(5_000),
};

const words = Object.keys(scenes).sort((a, b) => b.length - a.length);

function wordOf(id, said) {
  return words.find((word) => id?.startsWith(word)) ?? words.find((word) => said.trim().startsWith(word));
}

function chunked(turn, chunks) {
  chunks.forEach((chunk, index) => {
    turn.artifact(text(chunk), { id: 'chunked', append: index > 0, lastChunk: index === chunks.length - 1 });
  });
}

/** Asks until the answer is something else than the word that asks. */
async function askAgain(turn, word, options) {
  for (;;) {
    const answer = await turn.ask('More is needed to go on.', options);
    if (answer === null) return turn.refuse('What was asked for was not given.');
    const next = wordOf(answer.messageId, answer.text);
    if (next === word) continue;
    return next ? scenes[next](turn) : `Received: ${answer.text}`;
  }
}

async function multiTurn(turn) {
  for (;;) {
    const answer = await turn.ask('more input please', {});
    if (answer === null) return turn.refuse('What was asked for was not given.');
    if (/^\s*done\b/i.test(answer.text)) return 'multi-turn complete';
  }
}

function describe(block) {
  if (block.type === 'text') return block.text;
  if (block.type === 'resource_link') return `[link ${block.name} ${block.uri}]`;
  const { uri = '', mimeType, text: said, blob } = block.resource ?? { ...block, blob: block.data };
  return `[${block.type} ${uri.split('/').at(-1)} ${mimeType} ${Buffer.from(said ?? blob ?? '', said ? 'utf8' : 'base64').length} bytes]`;
}

openPeer(async (turn, prompt, message) => {
  const said = prompt.map(describe).join('\n');
  const word = wordOf(message.clientMessageId, said);
  const answer = word ? await scenes[word](turn) : `You said: ${said}`;
  if (typeof answer === 'string') turn.say(answer);
});
