import { limits } from '../../domain/limits.ts';
import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { conversationOf, messageOf } from '../present/conversation.ts';
import { pageQuery } from '../schemas/basics.ts';
import {
  ConversationAnswer,
  ConversationForkSend,
  ConversationPage,
  MessagePage,
} from '../schemas/conversation.ts';
import * as example from '../schemas/examples.ts';

const tag = 'Conversations';

export const conversationRoutes = [
  route({
    id: 'listConversations',
    method: 'get',
    path: '/v1/agents/{agentId}/conversations',
    tag,
    access: 'use',
    summary: "List an agent's conversations",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of conversations.',
        schema: ConversationPage,
        example: { conversations: [example.conversation], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.conversations.listForAgent(caller, params.agentId, query);
      const conversations = page.items.map(conversationOf);
      return { status: 200 as const, body: { conversations, nextCursor: page.nextCursor } };
    },
  }),
  route({
    id: 'getConversation',
    method: 'get',
    path: '/v1/conversations/{id}',
    tag,
    access: 'use',
    summary: 'Get a conversation',
    description: 'Its messages and events have calls of their own.',
    replies: {
      200: {
        description: 'The conversation.',
        schema: ConversationAnswer,
        example: { conversation: example.conversation },
      },
    },
    async handler({ services, caller, params }) {
      const conversation = await services.conversations.get(caller, params.id);
      return { status: 200 as const, body: { conversation: conversationOf(conversation) } };
    },
  }),
  route({
    id: 'forkConversation',
    method: 'post',
    path: '/v1/conversations/{id}/fork',
    tag,
    access: 'use',
    summary: 'Fork a conversation',
    description: `Begins a conversation with what was said in this one, all of it or up to the turn of a message; the next message goes on from there. Its messages, runs and events are copies with ids of their own, without deltas; they cost nothing. With \`toAgentId\` another agent goes on, and gets a copy of the files; a sandbox of it that runs is stopped, and while a turn is under way in it the answer is 409. At most ${limits.forkEvents} events are copied.`,
    body: ConversationForkSend,
    bodyExample: { messageId: example.message.id },
    idempotency: 'lease',
    errors: ['conversation_busy', 'conflict'],
    replies: {
      201: {
        description: 'The fork.',
        schema: ConversationAnswer,
        example: { conversation: example.fork },
        headers: { Location: 'Path of the conversation.' },
      },
    },
    async handler({ services, caller, params, body }) {
      const conversation = await services.forks.fork(caller, params.id, given(body));
      return {
        status: 201 as const,
        body: { conversation: conversationOf(conversation) },
        headers: { Location: `/v1/conversations/${conversation.id}` },
      };
    },
  }),
  route({
    id: 'deleteConversation',
    method: 'delete',
    path: '/v1/conversations/{id}',
    tag,
    access: 'edit',
    summary: 'Delete a conversation',
    description: 'With its messages and events. A run that is under way is cancelled.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.conversations.remove(caller, params.id);
      return { status: 204 as const };
    },
  }),
  route({
    id: 'listMessages',
    method: 'get',
    path: '/v1/conversations/{conversationId}/messages',
    tag,
    access: 'use',
    summary: "List a conversation's messages",
    description: 'Whole messages of both sides, newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of messages.',
        schema: MessagePage,
        example: { messages: [example.message, example.userMessage], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.conversations.messages(caller, params.conversationId, query);
      return {
        status: 200 as const,
        body: { messages: page.items.map(messageOf), nextCursor: page.nextCursor },
      };
    },
  }),
];
