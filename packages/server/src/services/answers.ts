import type { EventBody } from '../domain/events.ts';
import { invalid } from '../domain/errors.ts';
import { readInput } from '../domain/input-form.ts';
import { requireClientMessageId, requireMetadata, shownExtras } from '../domain/parts.ts';
import type { Answer, Question } from '../domain/questions.ts';
import type { RunAnswer } from './api.ts';

/** What a response says to a question. Throws `invalid_request` when it does not answer it. */
export function answerOf(question: Question, response: RunAnswer): Answer {
  switch (question.kind) {
    case 'permission': {
      const offered = question.options.map((option) => option.optionId);
      if ('optionId' in response && offered.includes(response.optionId)) {
        return { kind: 'permission', optionId: response.optionId };
      }
      throw invalid('optionId', `must be one of the options that were offered: ${offered.join(', ')}.`);
    }
    case 'input': {
      if (!('content' in response)) {
        throw invalid('content', 'must say what was asked for, or be null; see the event input.requested.');
      }
      if (response.content === null) return { kind: 'input', action: 'decline', content: null };
      const { message = null } = response;
      if (message?.clientMessageId != null)
        requireClientMessageId('clientMessageId', message.clientMessageId);
      if (message?.metadata != null) requireMetadata('metadata', message.metadata);
      const content = readInput(question.form, response.content);
      return { kind: 'input', action: 'accept', content, message };
    }
  }
}

/** The event that tells how a question ended. */
export function resolvedEvent(
  runId: string,
  question: Question,
  answer: Answer,
  by: 'policy' | 'caller' | 'cancel',
): EventBody {
  const { requestId } = question;
  if (question.kind === 'permission') {
    const optionId = answer.kind === 'permission' ? answer.optionId : null;
    return {
      type: 'permission.resolved',
      data: { runId, requestId, toolCallId: question.toolCallId, optionId, by },
    };
  }
  const { action, content } =
    answer.kind === 'input' ? answer : ({ action: 'cancel', content: null } as const);
  const message = answer.kind === 'input' && answer.action === 'accept' ? answer.message : null;
  const told = shownExtras(message && { ...message, parts: [] });
  return { type: 'input.resolved', data: { runId, requestId, action, content, ...told, by } };
}
