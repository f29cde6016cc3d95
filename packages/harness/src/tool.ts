import type { ToolDefinition } from './wire.ts';

/** Whoever sent the message. */
export interface Caller {
  /** Content of Agent Client Protocol that becomes an artifact of the run. */
  artifact: (content: object, about: { id: string; name: string }) => void;
  /** Asks with a form of one page; null when there is no answer. */
  ask: (message: string, form: object, signal: AbortSignal) => Promise<Record<string, unknown> | null>;
}

export interface ToolContext {
  /** The session's directory; relative paths begin here. */
  cwd: string;
  signal: AbortSignal;
  /** Unique for this call. */
  mark: string;
  /** Environment of child processes. */
  childEnv: () => Promise<Record<string, string>>;
  /** The output so far of a call that takes long. */
  onProgress: (text: string) => void;
  caller: Caller;
}

export interface ToolOutcome {
  text: string;
  isError: boolean;
}

export interface Tool {
  definition: ToolDefinition;
  /** Agent Client Protocol's tool kind. */
  kind: 'read' | 'edit' | 'search' | 'execute' | 'other';
  /** One line for people. */
  title: (input: Record<string, unknown>) => string;
  /** Throws ToolError for what the model should hear and correct. */
  run: (input: Record<string, unknown>, context: ToolContext) => Promise<ToolOutcome>;
}

/** A failure that is told to the model; it does not end the turn. */
export class ToolError extends Error {}

export function text(input: Record<string, unknown>, name: string): string {
  const value = input[name];
  if (typeof value !== 'string') throw new ToolError(`"${name}" must be a text.`);
  return value;
}

export function optionalText(input: Record<string, unknown>, name: string): string | undefined {
  return input[name] === undefined || input[name] === null ? undefined : text(input, name);
}

/** Models send numbers as texts now and then. */
export function optionalNumber(
  input: Record<string, unknown>,
  name: string,
  min: number,
  max: number,
): number | undefined {
  const value = input[name];
  if (value === undefined || value === null) return undefined;
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isFinite(number) || number < min || number > max) {
    throw new ToolError(`"${name}" must be a number from ${min} to ${max}.`);
  }
  return number;
}

export function oneLine(value: unknown, maxChars = 120): string {
  const line = `${typeof value === 'string' ? value : ''}`.replace(/\s+/g, ' ').trim();
  return line.length > maxChars ? `${line.slice(0, maxChars - 1)}…` : line;
}
