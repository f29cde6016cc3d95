/**
 * A repository with an Agent Client Protocol agent of a few lines that does what its prompt says, so that a test can have
 * every kind of answer: `echo …` (and whatever else), `slow COUNT MS`, `hold [FILE]` (goes on when
 * there is that file, or `go`, in the workspace), `artifacts`, `chunks`, `ask`, `interview [FILE]` (asks twice, first when there is that file), `access` (an authorization),
 * `permission`, `refuse`,
 * `plain …`, `parts` (tells what came), `big BYTES`.
 */
export const scriptedAgent: Record<string, string> = {
  'agent.json': JSON.stringify({ command: ['node', 'agent.mjs'], permissions: 'ask' }),
  'agent.mjs': `
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
const waiting = new Map();
const ask = (method, params) => new Promise((resolve) => {
  const id = 'ask-' + Math.random().toString(36).slice(2);
  waiting.set(id, resolve);
  write({ id, method, params });
});
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cancelled = new Set();
let sessions = 0;

async function answer(sessionId, prompt, meta) {
  const update = (update) => write({ method: 'session/update', params: { sessionId, update } });
  const say = (text) => update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
  const artifact = (content, about) =>
    update({ sessionUpdate: 'agent_message_chunk', content, _meta: { 'berth.dev': { artifact: about } } });
  const text = prompt.filter((block) => block.type === 'text').at(-1)?.text ?? '';
  const [word, ...rest] = text.trim().split(' ');
  switch (word) {
    case 'slow':
      for (let n = 1; n <= Number(rest[0]); n += 1) {
        if (cancelled.delete(sessionId)) return { stopReason: 'cancelled' };
        say(n + ' ');
        await sleep(Number(rest[1]));
      }
      break;
    case 'hold':
      for (const n of [1, 2, 3]) {
        say(n + ' ');
        await sleep(60);
      }
      while (!existsSync('/workspace/' + (rest[0] ?? 'go'))) await sleep(50);
      for (const n of [4, 5, 6]) {
        say(n + ' ');
        await sleep(60);
      }
      break;
    case 'artifacts':
      artifact({ type: 'text', text: 'a text' }, { id: 'a-text', name: 'Text' });
      artifact({ type: 'text', text: '' }, { id: 'a-data', data: { key: 'value', count: 42 } });
      artifact({ type: 'resource', resource: { uri: 'file:///output.txt', mimeType: 'text/plain', blob: 'dGNr' } }, { id: 'a-file' });
      artifact({ type: 'resource_link', uri: 'https://example.com/output.txt', name: 'output.txt', mimeType: 'text/plain' }, { id: 'a-link' });
      break;
    case 'chunks':
      artifact({ type: 'text', text: 'chunk-1 ' }, { id: 'chunked', append: false, lastChunk: false });
      await sleep(50);
      artifact({ type: 'text', text: 'chunk-2' }, { id: 'chunked', append: true, lastChunk: true });
      break;
    case 'ask': {
      const said = await ask('elicitation/create', { sessionId, mode: 'form', message: 'What colour?',
        requestedSchema: { type: 'object', properties: { colour: { type: 'string' } }, required: ['colour'] } });
      say('You said ' + JSON.stringify(said.content ?? said.action) + '.');
      break;
    }
    case 'interview': {
      const heard = [];
      while (rest[0] !== undefined && !existsSync('/workspace/' + rest[0])) await sleep(50);
      for (const name of ['colour', 'size']) {
        const said = await ask('elicitation/create', { sessionId, mode: 'form', message: 'What ' + name + '?',
          requestedSchema: { type: 'object', properties: { [name]: { type: 'string' } }, required: [name] } });
        heard.push(said.content?.[name] ?? said.action);
      }
      say('You said ' + heard.join(' and ') + '.');
      break;
    }
    case 'access': {
      const said = await ask('elicitation/create', { sessionId, mode: 'form', message: 'Open the door for me.',
        requestedSchema: { type: 'object', properties: { done: { type: 'string' } }, required: ['done'] },
        _meta: { 'berth.dev': { purpose: 'authorization' } } });
      say(JSON.stringify({ said: said.content?.done ?? said.action, message: said._meta?.['berth.dev']?.message ?? null }));
      break;
    }
    case 'permission': {
      const { outcome } = await ask('session/request_permission', { sessionId,
        toolCall: { toolCallId: 'call-1', title: 'Remove everything', kind: 'delete', status: 'pending' },
        options: [{ optionId: 'yes', name: 'Allow', kind: 'allow_once' }, { optionId: 'no', name: 'Reject', kind: 'reject_once' }] });
      say('Then ' + (outcome.optionId ?? outcome.outcome) + '.');
      break;
    }
    case 'refuse':
      say('I do not do that.');
      return { stopReason: 'refusal' };
    case 'plain':
      say(rest.join(' '));
      return { stopReason: 'end_turn', _meta: { 'berth.dev': { reply: 'message' } } };
    case 'parts':
      say(JSON.stringify({ blocks: prompt.map(({ type }) => type), message: meta?.['berth.dev']?.message ?? null }));
      break;
    default:
      say(text);
  }
  return { stopReason: 'end_turn' };
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params, result, error } = JSON.parse(line);
  if (method === undefined) return waiting.get(id)?.(result ?? error);
  switch (method) {
    case 'initialize':
      return write({ id, result: { protocolVersion: 1, agentCapabilities: { promptCapabilities: { image: true, audio: true, embeddedContext: true } } } });
    case 'session/new':
      return write({ id, result: { sessionId: 'session-' + ++sessions } });
    case 'session/cancel':
      return cancelled.add(params.sessionId);
    case 'session/prompt':
      cancelled.delete(params.sessionId);
      return write({ id, result: await answer(params.sessionId, params.prompt, params._meta) });
    default:
      if (id !== undefined) write({ id, error: { code: -32601, message: 'No such method.' } });
  }
});
`,
};
