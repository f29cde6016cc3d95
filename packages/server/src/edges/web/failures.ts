import { DomainError } from '../../domain/errors.ts';

export interface WebTimes {
  /** Until the server's answer begins. */
  answerMs: number;
  /** Without a byte in either direction. */
  idleMs: number;
  /** For a WebSocket's client to end its side, once all that the server wrote has left. */
  closeMs: number;
}

export function tooLate({ answerMs }: WebTimes): DomainError {
  return new DomainError(
    'gateway_timeout',
    `The agent's web server gave no answer within ${answerMs / 1000} s.`,
  );
}

export function noHttp(cause?: unknown): DomainError {
  return new DomainError('bad_gateway', "The agent's web server gave no answer that could be read.", {
    cause,
  });
}
