import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
} from '@modelcontextprotocol/server';

/**
 * An agent's tools are all that it offers. Many clients ask for its prompts and resources whatever it declares, and show an
 * error where there is no answer: they are told that there are none.
 */
export const nothingElse = {
  prompts: { listChanged: false },
  resources: { listChanged: false, subscribe: false },
};

export function registerNothingElse({ server }: McpServer): void {
  server.setRequestHandler('prompts/list', () => ({ prompts: [] }));
  server.setRequestHandler('prompts/get', ({ params }) => {
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `There is no prompt "${params.name}".`);
  });
  server.setRequestHandler('resources/list', () => ({ resources: [] }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: [] }));
  server.setRequestHandler('resources/read', ({ params }) => {
    throw new ResourceNotFoundError(params.uri);
  });
}
