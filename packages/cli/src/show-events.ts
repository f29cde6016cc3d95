import type { Event } from '@berth/sdk';
import type { Context } from './command.ts';
import { safe } from './print.ts';

const MAX_TOOL_TEXT = 2_000;

function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > MAX_TOOL_TEXT ? `${text.slice(0, MAX_TOOL_TEXT)}… (${text.length} characters)` : text;
}

/**
 * Prints a turn as it happens: the answer's text on standard output, everything else (tool calls, retries, errors)
 * on standard error. Returns the type of the event that ended the run.
 */
export async function showTurn(context: Context, events: AsyncIterable<Event>): Promise<string | null> {
  let atLineStart = true;
  const line = (text: string) => {
    if (!atLineStart) context.out('\n');
    atLineStart = true;
    context.note(`${text}\n`);
  };
  for await (const event of events) {
    const data = event.data as Record<string, string> & { input?: unknown; output?: unknown };
    if (context.json) context.out(`${JSON.stringify(event)}\n`);
    else if (event.type === 'message.delta') {
      const shown = safe(data['text']!, true);
      context.out(shown);
      atLineStart = shown.endsWith('\n') || (atLineStart && shown === '');
    } else {
      const note = noteOf(event.type, data);
      if (note !== null) line(note);
    }
    if (/^run\.(completed|failed|cancelled)$/.test(event.type)) {
      if (!atLineStart && !context.json) context.out('\n');
      return event.type;
    }
  }
  return null;
}

function optionsOf(data: object): string {
  const { options = [] } = data as { options?: { optionId: string }[] };
  return options.map(({ optionId }) => optionId).join('|');
}

/** What is worth a line of its own to a person who watches. */
export function noteOf(
  type: string,
  data: Record<string, string> & { input?: unknown; output?: unknown; error?: unknown },
): string | null {
  switch (type) {
    case 'tool.started':
      return `> ${safe(data['title']!)} ${safe(textOf(data.input))}`.trimEnd();
    case 'tool.finished':
      return `< ${safe(data['status']!)} ${safe(textOf(data.output), true)}`.trimEnd();
    case 'run.retrying':
      return `! the turn was interrupted (${safe(data['reason']!)}); attempt ${String(data['attempt'])} begins anew`;
    case 'run.failed': {
      const error = data.error as unknown as { error: string; code: string };
      return `! failed: ${safe(error.error)} (${safe(error.code)})`;
    }
    case 'run.cancelled':
      return '! cancelled';
    case 'permission.requested':
      return `? permission asked: ${safe(data['title'] ?? '')} (answer with: berth runs respond ${safe(data['runId']!)} ${safe(data['requestId']!)} --option <${safe(optionsOf(data))}>)`;
    case 'input.requested':
      return `? ${safe(data['message'] ?? '', true)} (answer with: berth runs respond ${safe(data['runId']!)} ${safe(data['requestId']!)} <text>)`;
    case 'artifact.updated':
      return `+ ${safe(data['name'] ?? data['artifactId']!)} (see: berth runs artifacts ${safe(data['runId']!)})`;
    default:
      return null;
  }
}
