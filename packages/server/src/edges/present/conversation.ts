import { formatMicros } from '../../domain/money.ts';
import type { Conversation, Message, Run, RunUsage } from '../../domain/nouns.ts';
import { shownExtras } from '../../domain/parts.ts';
import type { Artifact } from '../../domain/parts.ts';
import type { RunOutcome } from '../../services/api.ts';
import { timeOrNull } from './agent.ts';

export function conversationOf(conversation: Conversation) {
  return {
    id: conversation.id,
    agentId: conversation.agentId,
    title: conversation.title,
    source: conversation.source,
    createdAt: conversation.createdAt.toISOString(),
    lastMessageAt: conversation.lastMessageAt.toISOString(),
  };
}

export function messageOf(message: Message) {
  return {
    id: message.id,
    agentId: message.agentId,
    conversationId: message.conversationId,
    runId: message.runId,
    role: message.role,
    content: message.content,
    ...shownExtras(message.extras),
    ...(message.artifactIds.length > 0 && { artifactIds: message.artifactIds }),
    createdAt: message.createdAt.toISOString(),
  };
}

export function usageOf(usage: RunUsage) {
  return {
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
    cost: formatMicros(usage.costMicros),
  };
}

export function runOf(run: Run) {
  return {
    id: run.id,
    agentId: run.agentId,
    conversationId: run.conversationId,
    deploymentId: run.deploymentId,
    status: run.status,
    attempt: run.attempt,
    error: run.error ? { error: run.error.error, code: run.error.code as string } : null,
    usage: usageOf(run.usage),
    createdAt: run.createdAt.toISOString(),
    startedAt: timeOrNull(run.startedAt),
    endedAt: timeOrNull(run.endedAt),
  };
}

/** The 200 answer of a send: the run has ended. */
export function sentOf({ run, message }: RunOutcome, artifacts: Artifact[]) {
  const sent = {
    agentId: run.agentId,
    conversationId: run.conversationId,
    runId: run.id,
    status: run.status,
    message: message ? messageOf(message) : null,
    usage: usageOf(run.usage),
    ...(artifacts.length > 0 && { artifacts }),
  };
  return message ? sent : { ...sent, error: whyNoMessage(run) };
}

function whyNoMessage(run: Run): { error: string; code: string } {
  if (run.error) return { error: run.error.error, code: run.error.code };
  return { error: 'The run was cancelled before it had an answer.', code: 'cancelled' };
}
