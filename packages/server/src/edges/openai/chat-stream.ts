import type { EventUsage } from '../../domain/events.ts';
import type { EventFrame, StreamSink } from '../http/stream.ts';
import type { OpenaiError } from './errors.ts';
import { errorOfRun } from './errors.ts';
import { createTeller } from './told.ts';

export interface ChatStream {
  /** Writes the first chunk, and remembers where the stream ends. */
  begin(sink: StreamSink): void;
  frame: EventFrame;
}

/** The chunks of a chat completion, made of the events of its run. */
export function chatFrames(options: {
  id: string;
  model: string;
  includeUsage: boolean;
  metadata: Record<string, string>;
}): ChatStream {
  const { id, model, includeUsage, metadata } = options;
  const created = Math.floor(Date.now() / 1000);
  const chunk = (choices: object[], more: object = {}): string =>
    `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', created, model, choices, ...more })}\n\n`;
  const delta = (fields: object, finish: string | null = null): string =>
    chunk(
      [{ index: 0, delta: fields, logprobs: null, finish_reason: finish }],
      includeUsage ? { usage: null } : {},
    );
  const toldOf = createTeller();
  let toldChars = 0;
  let isOver = false;
  let sink: StreamSink | null = null;

  /** After an error nothing more is to come, whatever becomes of the run. */
  function fail(error: OpenaiError): string {
    isOver = true;
    queueMicrotask(() => sink?.end());
    return `data: ${JSON.stringify({ error })}\n\n`;
  }

  function close(finish: string, { inputTokens, outputTokens }: EventUsage): string {
    isOver = true;
    const usage = {
      prompt_tokens: inputTokens,
      completion_tokens: outputTokens,
      total_tokens: inputTokens + outputTokens,
    };
    return `${delta({}, finish)}${includeUsage ? chunk([], { usage }) : ''}data: [DONE]\n\n`;
  }

  return {
    begin(opened) {
      sink = opened;
      opened.raw(
        chunk(
          [
            {
              index: 0,
              delta: { role: 'assistant', content: '', refusal: null },
              logprobs: null,
              finish_reason: null,
            },
          ],
          { metadata, ...(includeUsage ? { usage: null } : {}) },
        ),
      );
    },

    frame(event) {
      if (isOver) return '';
      const told = toldOf(event);
      switch (told.kind) {
        case 'text':
          toldChars += told.text.length;
          return delta({ content: told.text });
        case 'thought':
          return delta({ reasoning_content: told.text });
        case 'whole': {
          // Deltas that were compacted before the stream began.
          const rest = told.text.slice(toldChars);
          toldChars += rest.length;
          return rest === '' ? '' : delta({ content: rest });
        }
        case 'restarted':
          return toldChars === 0 ? '' : fail(restartedError(metadata['run_id']!));
        case 'completed':
          return close('stop', told.usage);
        case 'failed':
          if (told.error?.code === 'refused') return close('content_filter', told.usage);
          return fail(errorOfRun(told.error));
        case 'waiting':
          // No part of the answer; what clients show of thoughts is the one place beside it.
          return delta({ reasoning_content: `\n${told.text}\n` });
        case 'nothing':
          return '';
      }
    },
  };
}

/** What was streamed cannot be taken back, so that the client has to be told. */
export function restartedError(runId: string): OpenaiError {
  return {
    message: `The agent was interrupted and has begun its answer anew; read it at /v1/runs/${runId} of the service.`,
    type: 'server_error',
    param: null,
    code: 'run_retried',
  };
}
