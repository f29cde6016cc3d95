import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { model, text } from './basics.ts';
import { messageParts } from './part.ts';

export const ChatSend = model(
  'ChatSend',
  z
    .strictObject({
      agentId: z.string().meta({ format: 'uuid', description: 'The agent that receives the message.' }),
      conversationId: z
        .string()
        .nullable()
        .optional()
        .meta({ description: 'The conversation to go on with; null or left out starts a new one.' }),
      content: text(
        0,
        limits.contentChars,
        `The message text, 1 to ${limits.contentChars} characters; it may be empty when there are parts.`,
      ),
      parts: messageParts
        .optional()
        .describe(`Files, data and links beside the text, at most ${limits.partsPerMessage}.`),
      clientMessageId: text(
        1,
        limits.clientMessageIdChars,
        'An id of your own, kept with the message and told to the agent.',
      ).optional(),
      metadata: z
        .record(z.string(), z.unknown())
        .optional()
        .describe(`Kept with the message and told to the agent; at most ${limits.metadataChars} characters.`),
      stream: z.boolean().optional().describe('Answer with server-sent events.'),
      onBusy: z
        .enum(['enqueue', 'interrupt', 'reject'])
        .optional()
        .describe(
          'When a run of the conversation is under way: wait for it (default), cancel it, or refuse with 409.',
        ),
    })
    .superRefine(({ content, parts = [] }, context) => {
      if (content === '' && parts.length === 0) {
        context.addIssue({
          code: 'too_small',
          origin: 'string',
          minimum: 1,
          inclusive: true,
          path: ['content'],
        });
      }
    }),
);
