import type { ChatAccepted, ChatSent, LimitsAnswer, SecretName } from './types.generated.ts';

export type * from './types.generated.ts';

/** Names that read well in a program. Unknown fields and event types may appear and are to be ignored. */
export type Secret = SecretName;
export type SendResult = ChatSent | (ChatAccepted & { usage?: never; error?: never });
export type Limits = LimitsAnswer;
