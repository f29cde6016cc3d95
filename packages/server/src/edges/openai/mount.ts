import { DomainError, notFound } from '../../domain/errors.ts';
import type { HostCall, HostMount } from '../hosts/host-edge.ts';
import { createChatCompletion } from './chat.ts';
import { refuseAsOpenai } from './errors.ts';
import { getModel, listModels } from './model-name.ts';
import { cancelResponse, createResponse, getResponse } from './responses.ts';

interface Operation {
  method: 'GET' | 'POST';
  pattern: RegExp;
  handle(call: HostCall, id: string): Promise<Response>;
}

export const openaiOperations: Operation[] = [
  { method: 'GET', pattern: /^\/v1\/models$/, handle: listModels },
  { method: 'GET', pattern: /^\/v1\/models\/([^/]+)$/, handle: getModel },
  { method: 'POST', pattern: /^\/v1\/chat\/completions$/, handle: createChatCompletion },
  { method: 'POST', pattern: /^\/v1\/responses$/, handle: createResponse },
  { method: 'GET', pattern: /^\/v1\/responses\/([^/]+)$/, handle: getResponse },
  { method: 'POST', pattern: /^\/v1\/responses\/([^/]+)\/cancel$/, handle: cancelResponse },
];

/** The shape of OpenAI's API (docs/openai.md): the agent is the model, a response is a run. */
export function openaiMount(): HostMount {
  return {
    name: 'openai',
    owns: (path) => /^\/v1\/(models|chat\/completions|responses)(\/|$)/.test(path),
    refuse: refuseAsOpenai,
    async handle(call) {
      const found = openaiOperations.filter(({ pattern }) => pattern.test(call.path));
      if (found.length === 0) throw notFound();
      const method = call.method === 'HEAD' ? 'GET' : call.method;
      const operation = found.find((one) => one.method === method);
      if (operation) return operation.handle(call, idIn(call.path, operation.pattern));
      const allowed = found.map((one) => (one.method === 'GET' ? 'GET, HEAD' : one.method)).join(', ');
      call.head['Allow'] = allowed;
      throw new DomainError('method_not_allowed', `This path takes ${allowed} only.`);
    },
  };
}

function idIn(path: string, pattern: RegExp): string {
  const text = pattern.exec(path)?.[1] ?? '';
  try {
    return decodeURIComponent(text);
  } catch {
    throw notFound();
  }
}
