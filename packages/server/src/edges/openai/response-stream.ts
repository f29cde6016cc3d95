import type { EventFrame, StreamSink } from '../http/stream.ts';
import { restartedError } from './chat-stream.ts';
import type { Echo, ResponseState } from './response-object.ts';
import { messageItem, responseObject, textPart } from './response-object.ts';
import { outerId } from './ids.ts';
import { createTeller } from './told.ts';

export interface ResponseStream {
  begin(sink: StreamSink): void;
  frame: EventFrame;
}

/**
 * The events of a response, made of those of its run. Their numbers follow from the log alone, so that a stream that was
 * cut can be had again after the last one that came: `after` leaves out those up to it.
 */
export function responseFrames(state: ResponseState, echo: Echo, after = -1): ResponseStream {
  const itemId = outerId('msg_', state.runId);
  const place = { item_id: itemId, output_index: 0, content_index: 0 };
  const toldOf = createTeller();
  let number = 0;
  let text = '';
  let hasItem = false;
  let isOver = false;
  let sink: StreamSink | null = null;

  function event(type: string, data: object): string {
    const sequence = number++;
    if (sequence <= after) return '';
    return `event: ${type}\ndata: ${JSON.stringify({ type, ...data, sequence_number: sequence })}\n\n`;
  }

  const whole = (change: Partial<ResponseState>) => ({
    response: responseObject({ ...state, ...change }, echo),
  });

  function openItem(): string {
    if (hasItem) return '';
    hasItem = true;
    return (
      event('response.output_item.added', { output_index: 0, item: messageItem(state.runId, null) }) +
      event('response.content_part.added', { ...place, part: textPart('') })
    );
  }

  function tell(piece: string): string {
    const opened = openItem();
    text += piece;
    return opened + event('response.output_text.delta', { ...place, delta: piece, logprobs: [] });
  }

  function closeItem(): string {
    return (
      openItem() +
      event('response.output_text.done', { ...place, text, logprobs: [] }) +
      event('response.content_part.done', { ...place, part: textPart(text) }) +
      event('response.output_item.done', { output_index: 0, item: messageItem(state.runId, text) })
    );
  }

  return {
    begin(opened) {
      sink = opened;
      const begun = whole({ status: 'running', text: null, error: null, usage: null });
      opened.raw(event('response.created', begun) + event('response.in_progress', begun));
    },

    frame(logged) {
      if (isOver) return '';
      const told = toldOf(logged);
      switch (told.kind) {
        case 'text':
          return tell(told.text);
        case 'whole': {
          // Deltas that were compacted before the stream began.
          const rest = told.text.slice(text.length);
          return rest === '' ? '' : tell(rest);
        }
        case 'restarted': {
          if (text === '') return '';
          isOver = true;
          queueMicrotask(() => sink?.end());
          const { code, message, param } = restartedError(state.runId);
          return event('error', { code, message, param });
        }
        case 'completed':
          isOver = true;
          return (
            closeItem() +
            event('response.completed', whole({ status: 'completed', text, error: null, usage: told.usage }))
          );
        case 'failed': {
          isOver = true;
          const status = told.error === null ? 'cancelled' : 'failed';
          const ended = whole({ status, text: null, error: told.error, usage: told.usage });
          return event('response.failed', ended);
        }
        case 'waiting': {
          const { response } = whole({ status: 'awaiting_input', text: null, error: null, usage: null });
          const asked = { request_id: told.requestId, message: told.text };
          return event('response.in_progress', { response: { ...response, awaiting_input: asked } });
        }
        case 'thought':
        case 'nothing':
          return '';
      }
    },
  };
}
