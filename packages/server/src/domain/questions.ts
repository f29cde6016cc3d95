import type { PermissionOption } from './events.ts';

/** What a harness may ask the caller while a run waits. */
export type Question = { requestId: string } & (
  | { kind: 'permission'; toolCallId: string; title: string; options: PermissionOption[] }
  /** `authorization`: what is asked for allows something, such as a key that the caller has from elsewhere. */
  | { kind: 'input'; message: string; form: InputForm; purpose: InputPurpose }
);

export type InputPurpose = 'input' | 'authorization';

/**
 * The JSON Schema of an object whose properties are texts, numbers, booleans or lists of texts (Agent Client Protocol,
 * `ElicitationSchema`), as the harness gave it, bounded.
 */
export type InputForm = Record<string, unknown>;

/** What an input was answered with, by name of the form's properties. */
export type InputContent = Record<string, string | number | boolean | string[]>;

/** What is told with an answer that came as a message of its own. */
export interface AnswerMessage {
  source: string;
  clientMessageId: string | null;
  metadata: Record<string, unknown> | null;
}

/** What a caller said, with what makes the same message known when it is sent again. */
export type KeptAnswer = Answer & { repeatKey?: string };

export type Answer =
  /** Null: nobody will choose any more. */
  | { kind: 'permission'; optionId: string | null }
  /** `decline`: the caller does not want to say. `cancel`: nobody will answer any more. */
  | { kind: 'input'; action: 'accept'; content: InputContent; message: AnswerMessage | null }
  | { kind: 'input'; action: 'decline' | 'cancel'; content: null };

export function noAnswer(kind: Question['kind']): Answer {
  return kind === 'permission' ? { kind, optionId: null } : { kind, action: 'cancel', content: null };
}
