import { route } from '../http/route.ts';
import { sandboxOf } from '../present/sandbox.ts';
import { pageQuery } from '../schemas/basics.ts';
import * as example from '../schemas/sandbox-examples.ts';
import { SandboxAnswer, SandboxPage } from '../schemas/sandbox.ts';

const tag = 'Sandboxes';
const one = { schema: SandboxAnswer, example: { sandbox: example.sandbox } };
const stopped = { schema: SandboxAnswer, example: { sandbox: example.stoppedSandbox } };

export const sandboxRoutes = [
  route({
    id: 'listSandboxes',
    method: 'get',
    path: '/sandbox',
    tag,
    access: 'use',
    summary: 'List sandboxes',
    description:
      'One for each agent that the key may see, in the order of the agents, newest first. One that was never started is `stopped`.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of sandboxes.',
        schema: SandboxPage,
        example: { sandboxes: [example.sandbox], nextCursor: null },
      },
    },
    async handler({ services, caller, query }) {
      const page = await services.sandboxes.list(caller, query);
      return {
        status: 200 as const,
        body: { sandboxes: page.items.map(sandboxOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'getSandbox',
    method: 'get',
    path: '/sandbox/{agentId}',
    tag,
    access: 'use',
    summary: "Get an agent's sandbox",
    description: 'Its state, what it uses now, and what it has cost so far.',
    replies: { 200: { ...one, description: 'The sandbox.' } },
    async handler({ services, caller, params }) {
      const sandbox = await services.sandboxes.get(caller, params.agentId);
      return { status: 200 as const, body: { sandbox: sandboxOf(sandbox) } };
    },
  }),
  route({
    id: 'startSandbox',
    method: 'post',
    path: '/sandbox/{agentId}/start',
    tag,
    access: 'edit',
    summary: 'Start a sandbox',
    description:
      'Answers when it runs. One that runs is left as it is, one that is frozen goes on. A sandbox is started by itself when a message comes, so this only saves the first message the wait.',
    idempotency: 'repeatable',
    errors: ['conflict', 'too_many_sandboxes'],
    replies: { 200: { ...one, description: 'The sandbox, running.' } },
    async handler({ services, caller, params }) {
      const sandbox = await services.sandboxes.start(caller, params.agentId);
      return { status: 200 as const, body: { sandbox: sandboxOf(sandbox) } };
    },
  }),
  route({
    id: 'stopSandbox',
    method: 'post',
    path: '/sandbox/{agentId}/stop',
    tag,
    access: 'edit',
    summary: 'Stop a sandbox',
    description:
      'Waits for the turns that are under way, asks what runs in it to end, and answers when it is gone. Its files stay. The next message starts it again.',
    idempotency: 'repeatable',
    errors: ['conflict'],
    replies: { 200: { ...stopped, description: 'The sandbox, stopped.' } },
    async handler({ services, caller, params }) {
      const sandbox = await services.sandboxes.stop(caller, params.agentId);
      return { status: 200 as const, body: { sandbox: sandboxOf(sandbox) } };
    },
  }),
  route({
    id: 'restartSandbox',
    method: 'post',
    path: '/sandbox/{agentId}/restart',
    tag,
    access: 'edit',
    summary: 'Restart a sandbox',
    description: 'Stops it when its turns have ended, and starts it again, with the same files.',
    idempotency: 'lease',
    errors: ['conflict', 'too_many_sandboxes'],
    replies: { 200: { ...one, description: 'The sandbox, running.' } },
    async handler({ services, caller, params }) {
      const sandbox = await services.sandboxes.restart(caller, params.agentId);
      return { status: 200 as const, body: { sandbox: sandboxOf(sandbox) } };
    },
  }),
  route({
    id: 'killSandbox',
    method: 'post',
    path: '/sandbox/{agentId}/kill',
    tag,
    access: 'edit',
    summary: 'Kill a sandbox',
    description:
      'Ends everything in it at once. Turns that were under way are tried again in a new one, as after a crash; cancel their runs to stop them. Its files stay.',
    idempotency: 'lease',
    errors: ['conflict'],
    replies: { 200: { ...stopped, description: 'The sandbox, stopped.' } },
    async handler({ services, caller, params }) {
      const sandbox = await services.sandboxes.kill(caller, params.agentId);
      return { status: 200 as const, body: { sandbox: sandboxOf(sandbox) } };
    },
  }),
];
