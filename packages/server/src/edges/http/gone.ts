import type { ServerResponse } from 'node:http';

/** Why a request was aborted. Made once: an error of its own for each request that ends would take its stack each time. */
export const clientGone = new DOMException('The connection for the answer was closed.', 'AbortError');

/** Aborts when the answer's connection or, after the whole answer, the answer itself is closed. */
export function abortWhenGone(
  outgoing: ServerResponse | undefined,
  controller: AbortController,
): AbortSignal {
  if (outgoing?.destroyed) controller.abort(clientGone);
  else outgoing?.once('close', () => controller.abort(clientGone));
  return controller.signal;
}

const cut = new WeakSet<ServerResponse>();

/** Breaks an answer off: its client sees that it is not whole, and is not taken for one that has left. */
export function cutAnswer(response: ServerResponse): void {
  if (!response.destroyed) cut.add(response);
  response.destroy();
}

/** Whether the client ended the connection before the whole answer. */
export function clientLeft(response: ServerResponse): boolean {
  return response.destroyed && !response.writableEnded && !cut.has(response);
}
