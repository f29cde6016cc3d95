import type { Question } from '../../domain/questions.ts';
import type { RunAnswer } from '../../services/api.ts';
import { isRecord, malformed } from './guard.ts';
import type { ReadParts } from './parts.ts';

/** What a message says to the question that its task asks. Throws RequestMalformedError. */
export function answerTo(question: Question, { text, data }: ReadParts): RunAnswer {
  const { requestId } = question;
  const given = data.find(isRecord);
  if (question.kind === 'input') {
    if (given) return { requestId, content: given };
    if (text.trim() === '') throw malformed('message.parts', 'must hold the answer as text or data.');
    return { requestId, content: text };
  }
  if (typeof given?.['optionId'] === 'string') return { requestId, optionId: given['optionId'] };
  const said = text.trim().toLowerCase();
  const chosen = question.options.find(
    ({ optionId, name }) => said === optionId.toLowerCase() || said === name.toLowerCase(),
  );
  if (chosen) return { requestId, optionId: chosen.optionId };
  const kind = /^(yes|y|ok|okay|allow|approve|approved)[.!]?$/.test(said)
    ? 'allow_once'
    : /^(no|n|deny|reject|denied|rejected)[.!]?$/.test(said)
      ? 'reject_once'
      : null;
  const meant = question.options.find((option) => option.kind === kind);
  if (meant) return { requestId, optionId: meant.optionId };
  const names = question.options.map(({ name }) => name).join(', ');
  throw malformed('message.parts', `must say one of the options of the open question: ${names}.`);
}
