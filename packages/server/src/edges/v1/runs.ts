import { route } from '../http/route.ts';
import { runOf } from '../present/conversation.ts';
import { pageQuery } from '../schemas/basics.ts';
import { RunAnswer, RunPage, RunRespond } from '../schemas/conversation.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Runs';

export const runRoutes = [
  route({
    id: 'listRuns',
    method: 'get',
    path: '/v1/agents/{agentId}/runs',
    tag,
    access: 'use',
    summary: "List an agent's runs",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of runs.',
        schema: RunPage,
        example: { runs: [example.run], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.runs.listForAgent(caller, params.agentId, query);
      return { status: 200 as const, body: { runs: page.items.map(runOf), nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'getRun',
    method: 'get',
    path: '/v1/runs/{id}',
    tag,
    access: 'use',
    summary: 'Get a run',
    description: 'Its status, usage and, when it failed, why.',
    replies: { 200: { description: 'The run.', schema: RunAnswer, example: { run: example.run } } },
    async handler({ services, caller, params }) {
      const run = await services.runs.get(caller, params.id);
      return { status: 200 as const, body: { run: runOf(run) } };
    },
  }),
  route({
    id: 'cancelRun',
    method: 'post',
    path: '/v1/runs/{runId}/cancel',
    tag,
    access: 'use',
    summary: 'Cancel a run',
    description:
      'Reaches the process in the sandbox. Answers when it has stopped, or after a few seconds with the run still `running`; it is cancelled then as soon as it stops. A run that has ended stays as it is.',
    idempotency: 'lease',
    replies: { 200: { description: 'The run.', schema: RunAnswer, example: { run: example.cancelledRun } } },
    async handler({ services, caller, params }) {
      const run = await services.runs.cancel(caller, params.runId);
      return { status: 200 as const, body: { run: runOf(run) } };
    },
  }),
  route({
    id: 'respondToRun',
    method: 'post',
    path: '/v1/runs/{runId}/respond',
    tag,
    access: 'use',
    summary: 'Answer a permission request',
    description:
      'For a run with the status `awaiting_input`; the event `permission.requested` has the options.',
    body: RunRespond,
    bodyExample: { requestId: 'perm-1', optionId: 'allow_once' },
    idempotency: 'lease',
    replies: { 200: { description: 'The run.', schema: RunAnswer, example: { run: example.run } } },
    errors: ['conflict'],
    async handler({ services, caller, params, body }) {
      const run = await services.runs.respond(caller, params.runId, body);
      return { status: 200 as const, body: { run: runOf(run) } };
    },
  }),
];
