import type { z } from 'zod';
import type { RunResponse } from '../../services/api.ts';
import { route } from '../http/route.ts';
import { invalidRequest } from '../http/validate.ts';
import { runOf } from '../present/conversation.ts';
import { pageQuery } from '../schemas/basics.ts';
import { RunAnswer, RunPage, RunRespond } from '../schemas/conversation.ts';
import { ArtifactList } from '../schemas/part.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Runs';

function responseOf({ requestId, optionId, content }: z.output<typeof RunRespond>): RunResponse {
  if (optionId !== undefined && content === undefined) return { requestId, optionId };
  if (optionId === undefined && content !== undefined) return { requestId, content };
  const message = 'give either optionId, to a permission, or content, to an input';
  throw invalidRequest([{ path: optionId === undefined ? 'optionId' : 'content', message }]);
}

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
    idempotency: 'repeatable',
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
    summary: 'Answer what a run asks',
    description:
      'For a run with the status `awaiting_input`: give `optionId` to a permission (the event `permission.requested` has the options), `content` to an input (`input.requested` has the form).',
    body: RunRespond,
    bodyExample: { requestId: 'perm-1', optionId: 'allow_once' },
    idempotency: 'repeatable',
    replies: { 200: { description: 'The run.', schema: RunAnswer, example: { run: example.run } } },
    errors: ['conflict'],
    async handler({ services, caller, params, body }) {
      const run = await services.runs.respond(caller, params.runId, responseOf(body));
      return { status: 200 as const, body: { run: runOf(run) } };
    },
  }),
  route({
    id: 'listRunArtifacts',
    method: 'get',
    path: '/v1/runs/{runId}/artifacts',
    tag,
    access: 'use',
    summary: 'Get what a run has made',
    description:
      'Its artifacts, put together from the events `artifact.updated`, in the order in which they began. Of a run that goes on, what there is so far.',
    replies: {
      200: {
        description: 'The artifacts.',
        schema: ArtifactList,
        example: { artifacts: [example.artifact] },
      },
    },
    async handler({ services, caller, params }) {
      const artifacts = await services.runs.artifacts(caller, params.runId);
      return { status: 200 as const, body: { artifacts } };
    },
  }),
];
