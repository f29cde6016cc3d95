/** Agents of a repository for the tests of protocols: they speak the Agent Client Protocol on standard input and output. */
const head = `
  import { createInterface } from 'node:readline';
  const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
  let sessions = 0;
  const prompts = new Map();
  const update = (sessionId, update) => say({ method: 'session/update', params: { sessionId, update } });
  const chunk = (sessionId, text) => update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
  const end = (sessionId, stopReason = 'end_turn') => {
    const id = prompts.get(sessionId);
    if (id !== undefined) say({ id, result: { stopReason } });
    prompts.delete(sessionId);
  };
  const initialized = { protocolVersion: 1, agentCapabilities: { promptCapabilities: { image: true, embeddedContext: true } } };
`;

/**
 * By the words of the prompt: `ask` asks for a permission and tells what it heard, `form` asks for a name, `all` shows an
 * update of every kind, `refuse` refuses; to anything else it tells the blocks of the prompt as JSON.
 */
const variedAgent = `${head}
  const options = [{ optionId: 'yes', name: 'Yes', kind: 'allow_once' }, { optionId: 'no', name: 'No', kind: 'reject_once' }];
  const form = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
  const image = { type: 'image', mimeType: 'image/png', data: 'iVBORw0KGgo=' };
  const table = { 'berth.dev': { artifact: { id: 'table', name: 'Table', data: { rows: [1] } } } };
  function prompted(s, blocks) {
    const words = blocks.map((block) => block.text ?? '').join('');
    if (words.startsWith('ask')) {
      chunk(s, 'before, ');
      return say({ id: 'ask ' + s, method: 'session/request_permission', params: { sessionId: s, options,
        toolCall: { toolCallId: 't1', title: 'Do it', status: 'pending' } } });
    }
    if (words.startsWith('form')) {
      return say({ id: 'form ' + s, method: 'elicitation/create',
        params: { sessionId: s, mode: 'form', message: 'Who?', requestedSchema: form } });
    }
    if (words.startsWith('all')) {
      update(s, { sessionUpdate: 'agent_thought_chunk', content: { type: 'text', text: 'hm' } });
      update(s, { sessionUpdate: 'plan', entries: [{ content: 'one', priority: 'high', status: 'in_progress' }] });
      update(s, { sessionUpdate: 'tool_call', toolCallId: 't2', title: 'Read it', kind: 'read', status: 'pending', rawInput: { path: 'a' } });
      update(s, { sessionUpdate: 'tool_call_update', toolCallId: 't2', status: 'completed', rawOutput: 'contents' });
      update(s, { sessionUpdate: 'agent_message_chunk', content: image });
      update(s, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: '' }, _meta: table });
      chunk(s, 'done');
      return end(s);
    }
    if (words.startsWith('refuse')) {
      chunk(s, 'I will not.');
      return end(s, 'refusal');
    }
    chunk(s, JSON.stringify(blocks));
    end(s);
  }
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params, result, error } = JSON.parse(line);
    if (method === 'initialize') return say({ id, result: initialized });
    if (method === 'session/new') return say({ id, result: { sessionId: 's' + (sessions += 1) } });
    if (method === 'session/cancel') return end(params.sessionId, 'cancelled');
    if (method === 'session/prompt') {
      prompts.set(params.sessionId, id);
      return prompted(params.sessionId, params.prompt);
    }
    const [kind, s] = String(id).split(' ');
    if (kind === 'ask') {
      chunk(s, 'heard ' + (result?.outcome.optionId ?? result?.outcome.outcome));
      update(s, { sessionUpdate: 'tool_call_update', toolCallId: 't1', status: 'completed' });
      return end(s);
    }
    if (kind === 'form') {
      chunk(s, result?.action === 'accept' ? 'hello ' + result.content.name : String(result?.action));
      return end(s);
    }
  });`;

export const variedFiles = {
  'agent.json': JSON.stringify({ command: ['node', 'agent.mjs'], permissions: 'ask' }),
  'agent.mjs': variedAgent,
};
