// Agent Client Protocol, version 1, as much of it as an agent needs: JSON-RPC 2.0, one message a line.
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';

class Cancelled extends Error {}

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

/** Requests to the service, by their id. */
const asked = new Map();
let lastId = 0;

function request(method, params) {
  const id = ++lastId;
  send({ id, method, params });
  return new Promise((resolve, reject) => asked.set(id, { resolve, reject }));
}

/** What a turn can do beside answering with text (docs/harness.md). */
class Turn {
  #sessionId;
  #stop = new AbortController();
  #artifacts = 0;
  result = { stopReason: 'end_turn' };

  constructor(sessionId) {
    this.#sessionId = sessionId;
  }

  say(text) {
    this.#update({ content: { type: 'text', text } });
  }

  artifact(content, artifact = {}) {
    this.#artifacts += 1;
    const id = `artifact-${this.#artifacts}`;
    this.#update({ content, _meta: { 'berth.dev': { artifact: { id, ...artifact } } } });
  }

  /** The answer is a message, and not the result of a task. */
  plainMessage(text) {
    this.say(text);
    this.result = { stopReason: 'end_turn', _meta: { 'berth.dev': { reply: 'message' } } };
  }

  refuse(why) {
    this.say(why);
    this.result = { stopReason: 'refusal' };
  }

  /** Asks for a text. Null: nobody wants to give it. */
  async ask(message, ours) {
    const answer = await request('elicitation/create', {
      sessionId: this.#sessionId,
      mode: 'form',
      message,
      requestedSchema: {
        type: 'object',
        properties: { text: { type: 'string', title: 'Answer' } },
        required: ['text'],
      },
      _meta: { 'berth.dev': ours },
    });
    this.#stop.signal.throwIfAborted();
    if (answer.action !== 'accept') return null;
    const { clientMessageId } = answer._meta?.['berth.dev']?.message ?? {};
    return { text: String(answer.content?.text ?? ''), messageId: clientMessageId ?? null };
  }

  wait(ms) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.#stop.signal.addEventListener('abort', () => {
        clearTimeout(timer);
        reject(this.#stop.signal.reason);
      });
    });
  }

  cancel() {
    this.#stop.abort(new Cancelled());
  }

  #update(update) {
    const params = {
      sessionId: this.#sessionId,
      update: { sessionUpdate: 'agent_message_chunk', ...update },
    };
    send({ method: 'session/update', params });
  }
}

/** By session. */
const turns = new Map();

async function prompt(onPrompt, { sessionId, prompt: blocks, _meta: meta }) {
  const turn = new Turn(sessionId);
  turns.set(sessionId, turn);
  try {
    await onPrompt(turn, blocks, meta?.['berth.dev']?.message ?? {});
    return turn.result;
  } catch (error) {
    if (error instanceof Cancelled) return { stopReason: 'cancelled' };
    throw error;
  } finally {
    turns.delete(sessionId);
  }
}

const capabilities = {
  promptCapabilities: { image: true, audio: true, embeddedContext: true },
};

/** Serves until standard input ends. `onPrompt(turn, blocks, message)` does what a turn is to do. */
export function openPeer(onPrompt) {
  const methods = {
    initialize: () => ({ protocolVersion: 1, agentCapabilities: capabilities, authMethods: [] }),
    'session/new': () => ({ sessionId: randomUUID() }),
    'session/prompt': (params) => prompt(onPrompt, params),
    'session/cancel': ({ sessionId }) => turns.get(sessionId)?.cancel(),
  };
  createInterface({ input: process.stdin }).on('line', async (line) => {
    const { id, method, params, result, error } = JSON.parse(line);
    if (method === undefined) {
      const waiting = asked.get(id);
      asked.delete(id);
      return error ? waiting?.reject(new Error(error.message)) : waiting?.resolve(result);
    }
    try {
      if (!Object.hasOwn(methods, method))
        throw Object.assign(new Error('There is no such method.'), { code: -32601 });
      const answer = await methods[method](params);
      if (id !== undefined) send({ id, result: answer });
    } catch (failure) {
      if (id !== undefined) send({ id, error: { code: failure.code ?? -32603, message: failure.message } });
    }
  });
}
