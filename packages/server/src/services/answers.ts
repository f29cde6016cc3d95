import type { EventBody } from '../domain/events.ts';
import { invalid } from '../domain/errors.ts';
import { readInput } from '../domain/input-form.ts';
import type { Answer, Question } from '../domain/questions.ts';
import type { RunResponse } from './api.ts';

/** What a response says to a question. Throws `invalid_request` when it does not answer it. */
export function answerOf(question: Question, response: RunResponse): Answer {
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
      return { kind: 'input', action: 'accept', content: readInput(question.form, response.content) };
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
  return { type: 'input.resolved', data: { runId, requestId, action, content, by } };
}
