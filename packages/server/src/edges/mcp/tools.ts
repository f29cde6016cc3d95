import type { CallToolResult, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import type { RunOutcome } from '../../services/api.ts';
import { presentable } from '../http/errors.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { conversationOf } from '../present/conversation.ts';

/** Usual clients give a call of a tool a minute. */
const WAIT_DEFAULT_SECONDS = 50;

const RunResult = describedOnce(
  z.object({
    runId: z.string(),
    conversationId: z.string(),
    status: z
      .string()
      .describe('completed, failed, cancelled, or that it goes on: queued, running, awaiting_input'),
    message: z.string().nullable().describe('The answer, when completed'),
    error: z.object({ code: z.string(), message: z.string() }).nullable(),
  }),
);

const waitSeconds = z
  .int()
  .min(0)
  .max(limits.waitMaxSeconds)
  .default(WAIT_DEFAULT_SECONDS)
  .describe('How long to wait for the answer');

/** Made once: there is a server for each request, and a schema costs more to make than to use. */
const inputs = {
  send: z.object({
    content: z.string().min(1).max(limits.contentChars).describe('The message'),
    conversationId: z
      .string()
      .optional()
      .describe('A conversation to go on with, which the agent remembers; a new one when left out'),
    waitSeconds,
  }),
  run: z.object({ runId: z.string().describe('As send_message gave it'), waitSeconds }),
  list: z.object({
    limit: z.int().min(1).max(limits.pageMax).default(20),
    cursor: z.string().optional().describe('nextCursor of the page before'),
  }),
};

const Conversations = describedOnce(
  z.object({
    conversations: z.array(
      z.object({ id: z.string(), title: z.string(), createdAt: z.string(), lastMessageAt: z.string() }),
    ),
    nextCursor: z.string().nullable(),
  }),
);

/** What an agent offers to other agents; each call is one call of a service. */
export function registerTools(server: McpServer, call: HostCall): void {
  const { agent, caller, services } = call;

  server.registerTool(
    'send_message',
    {
      title: `Send a message to ${agent.name}`,
      description: `Sends a message to the agent "${agent.name}" and gives its answer. ${agent.description}\nWhen the answer takes longer than waitSeconds, the status tells that the run goes on: ask with get_run.`,
      inputSchema: inputs.send,
      outputSchema: RunResult,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    },
    (input) =>
      asResult(call, async () => {
        const accepted = await services.runs.send(caller, {
          agentId: agent.id,
          conversationId: input.conversationId ?? null,
          content: input.content,
          onBusy: 'enqueue',
          source: 'mcp',
          idempotency: null,
        });
        return outcomeResult(await wait(accepted.runId, input.waitSeconds));
      }),
  );

  server.registerTool(
    'get_run',
    {
      title: 'Get a run',
      description: `How a run of "${agent.name}" is: its status, and its answer when it has ended.`,
      inputSchema: inputs.run,
      outputSchema: RunResult,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    (input) => asResult(call, async () => outcomeResult(await wait(input.runId, input.waitSeconds))),
  );

  server.registerTool(
    'list_conversations',
    {
      title: 'List conversations',
      description: `The conversations with "${agent.name}", newest first.`,
      inputSchema: inputs.list,
      outputSchema: Conversations,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    (input) =>
      asResult(call, async () => {
        const page = { limit: input.limit, cursor: input.cursor ?? null };
        const { items, nextCursor } = await services.conversations.listForAgent(caller, agent.id, page);
        const conversations = items.map((item) => {
          const { id, title, createdAt, lastMessageAt } = conversationOf(item);
          return { id, title, createdAt, lastMessageAt };
        });
        return structured({ conversations, nextCursor });
      }),
  );

  const wait = (runId: string, seconds: number) =>
    services.runs.outcome(caller, runId, seconds * 1000, call.gone());
}

function outcomeResult({ run, message }: RunOutcome): CallToolResult {
  const error =
    run.status === 'cancelled'
      ? { code: 'cancelled', message: 'The run was cancelled before it had an answer.' }
      : run.error && { code: run.error.code, message: run.error.error };
  const told = {
    runId: run.id,
    conversationId: run.conversationId,
    status: run.status,
    message: message?.content ?? null,
    error,
  };
  const text =
    message?.content ?? error?.message ?? `The run is ${run.status}; ask again with get_run ${run.id}.`;
  return { content: [{ type: 'text', text }], structuredContent: told, isError: error !== null };
}

/** Clients of older revisions see the text alone. */
function structured(value: Record<string, unknown>): CallToolResult {
  return { content: [{ type: 'text', text: JSON.stringify(value) }], structuredContent: value };
}

/** What goes wrong in a tool is its result, which a model can read and act on; only the protocol's own errors are others. */
async function asResult(call: HostCall, work: () => Promise<CallToolResult>): Promise<CallToolResult> {
  try {
    return await work();
  } catch (error) {
    const failure = presentable(error, call.requestId);
    if (!(error instanceof DomainError)) {
      call.log.error('A tool of an agent failed.', { requestId: call.requestId, cause: failure.cause });
    }
    return { content: [{ type: 'text', text: `${failure.message} (${failure.code})` }], isError: true };
  }
}

/** The SDK asks for the JSON Schema of a result with every call of a tool: it is made once. */
function describedOnce<Schema extends z.ZodType>(schema: Schema) {
  const standard = schema['~standard'];
  const output = standard.jsonSchema.output({ target: 'draft-2020-12' });
  return { '~standard': { ...standard, jsonSchema: { ...standard.jsonSchema, output: () => output } } };
}
