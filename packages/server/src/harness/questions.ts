import { newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import { isStorableJson } from '../domain/parts.ts';
import { noAnswer } from '../domain/questions.ts';
import type { Answer, Question } from '../domain/questions.ts';
import { boundedText, isRecord } from './clean.ts';
import type { Json } from './clean.ts';

/** What a harness asks of a person with, by its method. */
const kinds = {
  'session/request_permission': 'permission',
  'elicitation/create': 'input',
} as const;

export type QuestionMethod = keyof typeof kinds;

const maxOptions = 20;

export function isQuestion(method: string): method is QuestionMethod {
  return Object.hasOwn(kinds, method);
}

/** Null: it cannot be put to anybody. */
export function readQuestion(method: QuestionMethod, params: Json): Question | null {
  return kinds[method] === 'permission' ? readPermission(params) : readInput(params);
}

function readPermission(params: Json): Question {
  const toolCall = isRecord(params['toolCall']) ? params['toolCall'] : {};
  const given = Array.isArray(params['options']) ? params['options'].filter(isRecord) : [];
  const options = given.slice(0, maxOptions).map((option) => ({
    optionId: boundedText(option['optionId'], 200),
    name: boundedText(option['name'], 200),
    kind: boundedText(option['kind'], 50),
  }));
  return {
    kind: 'permission',
    requestId: newId(),
    toolCallId: boundedText(toolCall['toolCallId'], 200),
    title: boundedText(toolCall['title'], 500),
    options,
  };
}

/** Forms only: a URL is nothing that every caller could open. One too large is not put, since a part of it would mislead. */
function readInput({ mode, message, requestedSchema: form, _meta: meta }: Json): Question | null {
  if (mode !== 'form' || !isRecord(form) || !isStorableJson(form)) return null;
  if (JSON.stringify(form).length > limits.questionFormChars) return null;
  const ours = isRecord(meta) ? meta['berth.dev'] : undefined;
  const isAuthorization = isRecord(ours) && ours['purpose'] === 'authorization';
  return {
    kind: 'input',
    requestId: newId(),
    message: boundedText(message, limits.questionChars),
    form,
    purpose: isAuthorization ? 'authorization' : 'input',
  };
}

/** The result that the harness gets. */
export function answerResult(answer: Answer): Json {
  if (answer.kind === 'input') {
    if (answer.action !== 'accept') return { action: answer.action };
    const { action, content, message } = answer;
    return message === null ? { action, content } : { action, content, _meta: { 'berth.dev': { message } } };
  }
  const { optionId } = answer;
  return { outcome: optionId === null ? { outcome: 'cancelled' } : { outcome: 'selected', optionId } };
}

export function refusedQuestion(method: QuestionMethod): Json {
  return answerResult(noAnswer(kinds[method]));
}

/** An answer that does not fit its question (an option that was not offered) is none. */
export function fittingAnswer(question: Question, answer: Answer): Answer {
  if (question.kind === 'input') return answer.kind === 'input' ? answer : noAnswer('input');
  const isOffered =
    answer.kind === 'permission' && question.options.some(({ optionId }) => optionId === answer.optionId);
  return isOffered ? answer : noAnswer('permission');
}
