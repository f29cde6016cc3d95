import { Readable } from 'node:stream';
import { z } from 'zod';
import { isId } from '../../domain/ids.ts';
import type { LogPosition, SandboxLogLine } from '../../services/sandbox-host.ts';
import type { Call } from '../http/route.ts';
import { route } from '../http/route.ts';
import * as example from '../schemas/sandbox-examples.ts';
import { wantsStream } from '../v1/events.ts';

const logQuery = z.strictObject({
  after: z
    .string()
    .optional()
    .transform((value, context): LogPosition | null => {
      if (value === undefined || value === '') return null;
      const parts = value.split(':');
      const [sandboxId = '', number = ''] = [parts.shift(), parts.pop()];
      const [epoch = null] = parts;
      const isPosition = isId(sandboxId) && /^\d{1,15}$/.test(number) && parts.length <= 1;
      if (isPosition && (epoch === null || isId(epoch))) return { sandboxId, epoch, number: Number(number) };
      context.addIssue({ code: 'custom', message: 'must be the id of a line, as the answer gives it' });
      return z.NEVER;
    })
    .meta({
      type: 'string',
      description:
        'Only lines after this one: `id` of an event, or `Berth-Log-Position`. All that are kept when it is of another sandbox, or of before a restart of the service.',
    }),
});

const positionOf = ({ sandboxId, epoch, number }: LogPosition): string =>
  [sandboxId, ...(epoch === null ? [] : [epoch]), number].join(':');

// oxlint-disable-next-line no-control-regex
const obeyed = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** A program chose the text: what a terminal would obey is shown instead. */
export function plainLine(line: SandboxLogLine): string {
  const text = line.text.replace(obeyed, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
  return `${line.at.toISOString()} ${text}\n`;
}

type LogCall = Call<{ agentId: string }, { after: LogPosition | null }, unknown>;

async function text(call: LogCall): Promise<Response> {
  const { services, caller, params, query } = call;
  const options = { after: query.after, follow: false, signal: call.gone() };
  const lines = await Array.fromAsync(services.sandboxExec.logs(caller, params.agentId, options));
  const headers: Record<string, string> = { 'Content-Type': 'text/plain; charset=utf-8' };
  const last = lines.at(-1);
  if (last) headers['Berth-Log-Position'] = positionOf(last);
  else if (query.after) headers['Berth-Log-Position'] = positionOf(query.after);
  const bytes = Buffer.from(lines.map(plainLine).join(''));
  headers['Content-Length'] = String(bytes.length);
  return call.download(200, headers, call.isHead ? null : Readable.from([bytes], { objectMode: false }));
}

async function stream(call: LogCall, after: LogPosition | null): Promise<Response> {
  const { services, caller, params } = call;
  const gone = call.gone();
  const lines = services.sandboxExec.logs(caller, params.agentId, { after, follow: true, signal: gone });
  // Who may not see the agent is told so before the stream begins.
  await services.agents.get(caller, params.agentId);
  return call.streamText(async (sink) => {
    void (async () => {
      for await (const line of lines) {
        sink.send('line', { at: line.at.toISOString(), text: line.text }, positionOf(line));
        await sink.drained();
      }
    })()
      .catch(() => undefined)
      .finally(() => sink.end());
    return () => {};
  });
}

export const logRoutes = [
  route({
    id: 'getSandboxLogs',
    method: 'get',
    path: '/sandbox/{agentId}/logs',
    tag: 'Sandboxes',
    access: 'use',
    summary: 'Read or follow the log of a sandbox',
    description:
      'What the programs of the sandbox wrote to standard error, and what became of it, as far back as it is kept. As text by default: a line each, beginning with its time; escapes for terminals are shown, not obeyed. With `Accept: text/event-stream` a stream that stays open, one event `line` each, which resumes by `Last-Event-ID` or `after`.',
    query: logQuery,
    requestHeaders: [
      {
        name: 'Last-Event-ID',
        description: 'In a stream: the line after which to go on. Wins over `after`.',
        example: example.logPosition,
      },
    ],
    replies: {
      200: {
        description: 'The lines, or the stream of them.',
        schema: null,
        media: { 'text/plain': 'A line each: its time, a space, its text.' },
        streamExample: example.logStream,
        headers: { 'Berth-Log-Position': 'The last line; pass it as `after` to go on.' },
      },
    },
    handler(call) {
      if (!call.canStream || !wantsStream(call.header('accept'))) return text(call) as never;
      const last = call.header('last-event-id');
      const after = last ? logQuery.safeParse({ after: last }).data?.after : undefined;
      return stream(call, after ?? call.query.after) as never;
    },
  }),
];
