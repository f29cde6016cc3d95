import type { ContentBlock, ToolCallContent, ToolCallStatus } from '@agentclientprotocol/sdk';
import type { HarnessUpdate } from '../domain/ports/harness.ts';
import { bounded, boundedText, isRecord } from './clean.ts';
import type { Json } from './clean.ts';

export type ToolUpdate = Extract<HarnessUpdate, { kind: 'tool' }>;

/** Of a JSON value: its characters, and its names and values. */
export interface Size {
  chars: number;
  values: number;
}

const maxTitleChars = 500;
const maxOutputChars = 64 * 1024;

const none: Size = { chars: 0, values: 0 };

const statuses: Record<ToolCallStatus, ToolUpdate['status']> = {
  pending: 'pending',
  in_progress: 'running',
  completed: 'completed',
  failed: 'failed',
};

/** A tool call that is under way. How large its input and output are is counted once: they are told again with each change. */
export class ToolCall {
  #update: ToolUpdate;
  #input: Size;
  #output: Size;

  constructor(update: ToolUpdate) {
    this.#update = update;
    this.#input = sizeOf(update.input);
    this.#output = sizeOf(update.output);
  }

  get status(): ToolUpdate['status'] {
    return this.#update.status;
  }

  /** Whole, as it is now. */
  told(as: Pick<ToolUpdate, 'phase' | 'status'>): ToolUpdate {
    return { ...this.#update, ...as };
  }

  /** Of one of what `told` gives. */
  size({ input: _input, output: _output, ...rest }: ToolUpdate): Size {
    const { chars } = sizeOf(rest);
    const names =
      (this.#input === none ? 0 : ',"input":'.length) + (this.#output === none ? 0 : ',"output":'.length);
    return {
      chars: chars + names + this.#input.chars + this.#output.chars,
      values: this.#input.values + this.#output.values,
    };
  }

  merge({ title, kind, status, rawInput, rawOutput, content }: Json): void {
    const now: ToolUpdate = { ...this.#update };
    if (typeof title === 'string' && title !== '') now.title = boundedText(title, maxTitleChars);
    if (typeof kind === 'string') now.toolKind = boundedText(kind, 50);
    if (typeof status === 'string' && Object.hasOwn(statuses, status))
      now.status = statuses[status as ToolCallStatus];
    if (rawInput !== undefined && rawInput !== null) {
      now.input = bounded(rawInput);
      this.#input = sizeOf(now.input);
    }
    const shown = contentText(content);
    if (shown !== '') now.output = shown;
    else if (rawOutput !== undefined && rawOutput !== null) now.output = bounded(rawOutput);
    if (now.output !== this.#update.output) this.#output = sizeOf(now.output);
    this.#update = now;
  }
}

function sizeOf(value: unknown): Size {
  return value === undefined ? none : { chars: JSON.stringify(value).length, values: valuesIn(value) };
}

/** A name counts as a value does. */
function valuesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  let count = 1;
  const isList = Array.isArray(value);
  for (const part of Object.values(value)) count += (isList ? 0 : 1) + valuesIn(part);
  return count;
}

function contentText(content: unknown): string {
  if (!Array.isArray(content)) return '';
  const parts = content.filter(isRecord).map((part) => {
    const type = part['type'] as ToolCallContent['type'];
    if (type === 'content') return blockText(part['content']);
    return type === 'diff' ? `Changed ${boundedText(part['path'], 1000)}` : '';
  });
  return boundedText(parts.filter((part) => part !== '').join('\n'), maxOutputChars);
}

/** What is to be read in a block; '' when there is nothing. */
export function blockText(block: unknown): string {
  if (!isRecord(block)) return '';
  const type = block['type'] as ContentBlock['type'];
  if (type === 'text') return typeof block['text'] === 'string' ? block['text'] : '';
  if (type === 'resource_link')
    return `[${boundedText(block['name'], 500)}](${boundedText(block['uri'], 2000)})`;
  if (type === 'resource' && isRecord(block['resource']))
    return boundedText(block['resource']['text'], maxOutputChars);
  return '';
}
