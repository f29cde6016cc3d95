import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { Wire, Wired } from './acp-wire.ts';
import { until } from './until.ts';

const schemaFile = fileURLToPath(import.meta.resolve('@agentclientprotocol/sdk/schema/v1/schema.json'));
const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true });
ajv.addSchema(JSON.parse(readFileSync(schemaFile, 'utf8')), 'acp');

const responses: Record<string, string> = {
  initialize: 'InitializeResponse',
  'session/new': 'NewSessionResponse',
  'session/load': 'LoadSessionResponse',
  'session/resume': 'ResumeSessionResponse',
  'session/list': 'ListSessionsResponse',
  'session/close': 'CloseSessionResponse',
  'session/delete': 'DeleteSessionResponse',
  'session/prompt': 'PromptResponse',
};
const asked: Record<string, string> = {
  'session/update': 'SessionNotification',
  'session/request_permission': 'RequestPermissionRequest',
  'elicitation/create': 'CreateElicitationRequest',
  '$/cancel_request': 'CancelRequestNotification',
};

/** Throws unless a value is what the schema of the protocol, as the SDK ships it, calls so. */
export function assertIs(name: string, value: unknown): void {
  const check = ajv.getSchema(`acp#/$defs/${name}`);
  assert.ok(check, `the schema has ${name}`);
  assert.ok(check(value), `${name}: ${ajv.errorsText(check.errors)} in ${JSON.stringify(value)}`);
}

/** A client that asks, waits, and holds every message that comes against the schema. */
export class Peer {
  readonly wire: Wire;
  readonly #methods = new Map<string, string>();
  #count = 0;
  #checked = 0;
  /** Requests of the agent that were answered. */
  readonly #answered = new Set<unknown>();
  /** Answers a request of the agent; null: it is left open. */
  onRequest: (message: Wired) => unknown = ({ method, params }) =>
    method === 'session/request_permission'
      ? { outcome: { outcome: 'selected', optionId: params.options[0].optionId } }
      : null;

  constructor(wire: Wire) {
    this.wire = wire;
  }

  /** Sends a request; resolves with its response, whichever. */
  async call(
    method: string,
    params: unknown,
    id: string | number = `c${(this.#count += 1)}`,
  ): Promise<Wired> {
    this.begin(method, params, id);
    return this.answerTo(id);
  }

  begin(method: string, params: unknown, id: string | number = `c${(this.#count += 1)}`): string | number {
    this.#methods.set(JSON.stringify(id), method);
    this.wire.send({ jsonrpc: '2.0', id, method, params });
    return id;
  }

  async answerTo(id: string | number | null): Promise<Wired> {
    const find = () => this.messages().find((message) => !message.method && message.id === id);
    await until(`the response to ${JSON.stringify(id)}`, () => find() !== undefined);
    return find();
  }

  /** The result of a request that succeeds. */
  async result(method: string, params: unknown): Promise<Wired> {
    const answer = await this.call(method, params);
    assert.ok(answer.result, `${method}: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  async error(method: string, params: unknown): Promise<{ code: number; message: string; data?: Wired }> {
    const answer = await this.call(method, params);
    assert.ok(answer.error, `${method}: ${JSON.stringify(answer.result)}`);
    return answer.error;
  }

  notify(method: string, params: unknown): void {
    this.wire.send({ jsonrpc: '2.0', method, params });
  }

  initialize(capabilities: object = {}, protocolVersion = 1): Promise<Wired> {
    const clientInfo = { name: 'checks', version: '1' };
    return this.result('initialize', { protocolVersion, clientCapabilities: capabilities, clientInfo });
  }

  async open(cwd = '/home/me/project'): Promise<string> {
    return (await this.result('session/new', { cwd, mcpServers: [] })).sessionId;
  }

  prompt(sessionId: string, text: string, more: object = {}): Promise<Wired> {
    return this.result('session/prompt', { sessionId, prompt: [{ type: 'text', text }], ...more });
  }

  /** All that came so far, checked. */
  messages(): Wired[] {
    for (const message of this.wire.received.slice(this.#checked)) {
      this.#checked += 1;
      this.#check(message);
    }
    return this.wire.received;
  }

  updates(sessionId?: string): Wired[] {
    return this.messages()
      .filter(
        ({ method, params }) => method === 'session/update' && (!sessionId || params.sessionId === sessionId),
      )
      .map(({ params }) => params.update);
  }

  text(sessionId?: string): string {
    return this.updates(sessionId)
      .filter((update) => update.sessionUpdate === 'agent_message_chunk')
      .map((update) => update.content.text ?? '')
      .join('');
  }

  requests(method: string, sessionId?: string): Wired[] {
    return this.messages().filter(
      ({ method: found, id, params }) =>
        found === method && id !== undefined && (!sessionId || params.sessionId === sessionId),
    );
  }

  #check(message: Wired): void {
    assert.equal(message.jsonrpc, '2.0', JSON.stringify(message));
    const { method } = message;
    if (method !== undefined) {
      assert.ok(asked[method], `the agent may send ${method}`);
      assertIs(asked[method]!, message.params);
      if (message.id === undefined || this.#answered.has(message.id)) return;
      this.#answered.add(message.id);
      const result = this.onRequest(message);
      if (result !== null) this.wire.send({ jsonrpc: '2.0', id: message.id, result });
      return;
    }
    assert.equal('result' in message, !('error' in message), `result or error: ${JSON.stringify(message)}`);
    if (message.error) return assertIs('Error', message.error);
    const name = responses[this.#methods.get(JSON.stringify(message.id)) ?? ''];
    if (name) assertIs(name, message.result);
  }
}
