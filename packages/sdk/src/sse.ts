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
  let current: SseEvent = { id: undefined, event: 'message', data: '' };
  let hasData = false;
  for await (const line of linesOf(body)) {
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

/** Lines end with LF, CR or both; a CR that ends a chunk waits for what follows it. */
async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest: string[] = [];
  let endsInCr = false;
  for await (const chunk of body) {
    let text = decoder.decode(chunk, { stream: true });
    if (endsInCr && text.startsWith('\n')) text = text.slice(1);
    if (text === '') continue;
    endsInCr = text.endsWith('\r');
    const lines = text.split(/\r\n|\r|\n/);
    // A long line comes in many chunks, so its pieces are joined once.
    rest.push(lines[0]!);
    for (let at = 1; at < lines.length; at += 1) {
      yield rest.join('');
      rest = [lines[at]!];
    }
  }
}
