import type { RunErrorCode } from '../domain/errors.ts';
import { limitEndOf } from '../domain/limit-end.ts';
import type { TurnResult } from '../domain/ports/harness.ts';
import type { SandboxExit } from '../domain/ports/sandbox.ts';
import { boundedText, isRecord } from './clean.ts';
import { RpcFailure } from './rpc-peer.ts';

/** Why the harness as a whole cannot go on. `message` is safe to show. */
export class HarnessError extends Error {
  readonly code: RunErrorCode;

  constructor(code: RunErrorCode, message: string) {
    super(message);
    this.name = 'HarnessError';
    this.code = code;
  }
}

export function exitError(exit: SandboxExit, launcherNotes: string): HarnessError {
  const limit = limitEndOf(exit);
  if (limit) return new HarnessError(limit.code, limit.error);
  const how =
    exit.code === null ? `was ended by ${exit.signal ?? 'the service'}` : `ended with exit code ${exit.code}`;
  const why = launcherNotes === '' ? '' : ` ${launcherNotes}`;
  return new HarnessError('harness_exit', `The harness ${how}.${why}`);
}

/** Codes that a harness may give itself (docs/design/sandbox-launch.md); others would let it pose as the service. */
const givenCodes = new Set(['model_error', 'budget_exceeded', 'harness_error']);

export function failedTurn(error: unknown): TurnResult {
  if (error instanceof HarnessError) return { outcome: 'failed', code: error.code, message: error.message };
  if (!(error instanceof RpcFailure)) throw error;
  const given = isRecord(error.data) ? error.data['code'] : undefined;
  const code = typeof given === 'string' && givenCodes.has(given) ? (given as RunErrorCode) : 'harness_error';
  // -32000 is Agent Client Protocol's "authentication required".
  const hint = error.code === -32000 ? ' (it asks for a key: set the secret that this agent needs)' : '';
  return { outcome: 'failed', code, message: `${boundedText(error.message, 600)}${hint}` };
}
