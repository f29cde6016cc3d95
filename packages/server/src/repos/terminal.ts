import { DomainError } from '../domain/errors.ts';
import { RepoError } from '../domain/ports/repos.ts';

/** A line for somebody's terminal: no escape sequences, no line breaks, not endless. */
export function terminalLine(text: string): string {
  // oxlint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '').slice(0, 2000);
}

export function terminalLines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => terminalLine(line).trimEnd())
    .filter((line) => line !== '')
    .slice(0, 200);
}

/** What may be said about a failure, or null when it was meant for nobody's eyes. */
export function publicMessage(error: unknown): string | null {
  return error instanceof RepoError || error instanceof DomainError ? error.message : null;
}
