import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { Artifact, Part } from './part.ts';
import { model, money, nextCursor, text, time, uuid } from './basics.ts';

export const Message = model(
  'Message',
  z.object({
    id: uuid('Identifier of the message.'),
    agentId: uuid('The agent.'),
    conversationId: uuid('The conversation.'),
    runId: uuid('The run that it began (user) or that answered with it (assistant).'),
    role: z.enum(['user', 'assistant']),
    content: z.string().describe('The text.'),
    parts: z.array(Part).optional().describe("Of a user's message: what came beside its text, if anything."),
    clientMessageId: z.string().optional().describe("The sender's own id, if it gave one."),
    metadata: z.record(z.string(), z.unknown()).optional().describe('As the sender gave it, if it did.'),
    artifactIds: z
      .array(z.string())
      .optional()
      .describe("Of an assistant's message: what the agent made, if anything; see the artifacts of the run."),
    createdAt: time('When it was written.'),
  }),
);
export const MessagePage = model('MessagePage', z.object({ messages: z.array(Message), nextCursor }));

export const Conversation = model(
  'Conversation',
  z.object({
    id: uuid('Identifier of the conversation.'),
    agentId: uuid('The agent.'),
    title: z.string().describe('The beginning of its first message.'),
    source: z
      .string()
      .describe('Where it came from, such as `api`; `fork` when it is a copy of another one.'),
    createdAt: time('When it began.'),
    lastMessageAt: time('When its last message was written.'),
  }),
);
export const ConversationAnswer = model('ConversationAnswer', z.object({ conversation: Conversation }));
export const ConversationPage = model(
  'ConversationPage',
  z.object({ conversations: z.array(Conversation), nextCursor }),
);

export const ConversationForkSend = model(
  'ConversationForkSend',
  z.strictObject({
    messageId: z
      .string()
      .meta({
        format: 'uuid',
        description:
          'A message of the conversation: its turn is the last one that is copied. All when left out.',
      })
      .optional(),
    toAgentId: z
      .string()
      .meta({
        format: 'uuid',
        description:
          'Another agent of the organisation, whose files become those of this one. Needs a key that may edit it.',
      })
      .optional(),
    title: text(1, limits.nameChars, 'Of the fork; that of the conversation when left out.').optional(),
  }),
);

export const RunError = model(
  'RunError',
  z.object({
    error: z.string().describe('Words for a person.'),
    code: z.string().describe('One word for a program, such as `model_error`, `timeout` or `sandbox_oom`.'),
  }),
  'Why a run ended without an answer.',
);

export const Usage = model(
  'Usage',
  z.object({
    inputTokens: z.number().int(),
    outputTokens: z.number().int(),
    cost: money('What it cost.'),
  }),
);

const runStatus = z
  .enum(['queued', 'running', 'awaiting_input', 'completed', 'failed', 'cancelled'])
  .describe('`completed`, `failed` and `cancelled` are final.');

const maybeTime = (description: string) => z.string().nullable().meta({ format: 'date-time', description });

export const Run = model(
  'Run',
  z.object({
    id: uuid('Identifier of the run.'),
    agentId: uuid('The agent.'),
    conversationId: uuid('The conversation.'),
    deploymentId: z
      .string()
      .nullable()
      .meta({ format: 'uuid', description: 'The version that it runs on; null until it starts.' }),
    status: runStatus,
    attempt: z.number().int().describe('How often it was begun: more than 1 after a crash.'),
    error: RunError.nullable(),
    usage: Usage,
    createdAt: time('When it was accepted.'),
    startedAt: maybeTime('When it began; null while queued.'),
    endedAt: maybeTime('When it ended; null until then.'),
  }),
  'One turn of a conversation.',
);
export const RunAnswer = model('RunAnswer', z.object({ run: Run }));
export const RunPage = model('RunPage', z.object({ runs: z.array(Run), nextCursor }));
export const RunRespond = model(
  'RunRespond',
  z.strictObject({
    requestId: text(1, 200, '`requestId` of the event `permission.requested` or `input.requested`.'),
    optionId: text(1, 200, 'To a permission: `optionId` of the chosen option.').optional(),
    content: z
      .union([z.string().max(limits.answerChars), z.record(z.string(), z.unknown()), z.null()])
      .optional()
      .describe(
        'To an input: what was asked for, by the names of its `form`, or a text when the form has one text only; null = you do not want to say.',
      ),
  }),
);

export const ChatSent = model(
  'ChatSent',
  z.object({
    agentId: uuid('The agent.'),
    conversationId: uuid('The conversation; send it with the next message to go on.'),
    runId: uuid('The run.'),
    status: runStatus,
    message: Message.nullable().describe(
      "The assistant's answer; null when the run failed or was cancelled.",
    ),
    usage: Usage,
    error: RunError.optional().describe('Only when there is no message.'),
    artifacts: z.array(Artifact).optional().describe('What the agent made, if anything.'),
  }),
);
export const ChatAccepted = model(
  'ChatAccepted',
  z.object({
    agentId: uuid('The agent.'),
    conversationId: uuid('The conversation.'),
    runId: uuid('The run; see `Location`.'),
    status: runStatus,
    message: z.null(),
  }),
);
