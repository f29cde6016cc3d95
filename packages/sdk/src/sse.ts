export interface SseEvent {
  id: string | undefined;
  event: string;
  data: string;
}

/**
 * Splits a stream of server-sent events (WHATWG HTML, section 9.2) into events. Comments are passed over. An event
 * that the connection cut off before its blank line is not given out: it comes again after a resume.
 */
export async function* readSse(body: ReadableStream<Uint8Array>): AsyncGenerator<SseEvent> {
  const decoder = new TextDecoder();
  let rest = '';
  let current: SseEvent = { id: undefined, event: 'message', data: '' };
  let hasData = false;
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (hasData) yield current;
        current = { id: undefined, event: 'message', data: '' };
        hasData = false;
        continue;
      }
      const colon = line.indexOf(':');
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
      if (field === 'id') current.id = value;
      else if (field === 'event') current.event = value;
      else if (field === 'data') {
        current.data = hasData ? `${current.data}\n${value}` : value;
        hasData = true;
      }
    }
  }
}
