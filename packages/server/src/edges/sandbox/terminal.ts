import { requireEdit } from '../../domain/access.ts';
import { route } from '../http/route.ts';
import { invalidRequest } from '../http/validate.ts';
import { terminalQuery } from '../schemas/terminal.ts';

/** The call of the WebSocket as the documentation has it; without an upgrade it says how to make one. */
export const terminalRoutes = [
  route({
    id: 'openTerminal',
    method: 'get',
    path: '/sandbox/{agentId}/terminal',
    tag: 'Sandboxes',
    access: 'edit',
    summary: 'Open a terminal',
    description:
      'A WebSocket on a pseudo-terminal with a shell; starts the sandbox when needed. Binary frames are bytes, both ways. Text frames are JSON: from the service `{"type":"opened","terminalId","offset","lostBytes"}` first, `{"type":"exit","exitCode","signal"}` last; from the client `{"type":"resize","columns","rows"}` and `{"type":"signal","signal"}`. A terminal waits a minute for a client whose connection broke. A browser, which can set no header, offers the subprotocols `berth.terminal.v1` and `berth.key.<API key>`.',
    query: terminalQuery,
    errors: ['conflict', 'too_many_sandboxes'],
    replies: { 101: { description: 'The connection is a WebSocket now.', schema: null } },
    async handler({ services, caller, params }) {
      await services.agents.get(caller, params.agentId);
      requireEdit(caller);
      throw invalidRequest([{ path: 'Upgrade', message: 'must be websocket; this is no plain request' }]);
    },
  }),
];
