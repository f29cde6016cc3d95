/**
 * The response, not before its first bytes. One that ends with them, as an answer of a tool does, has a body of bytes: it
 * leaves with its head in one write, where a stream takes three and wakes the client for each. What goes on stays a stream.
 */
export async function settled(response: Response): Promise<Response> {
  if (response.body === null) return response;
  const { status, headers } = response;
  const reader = response.body.getReader();
  const first = await reader.read();
  const second = first.done ? first : reader.read();
  const later = new Promise<null>((resolve) => setImmediate(resolve, null));
  if ((await Promise.race([second, later]))?.done)
    return new Response(first.value ?? new Uint8Array(), { status, headers });
  const read = [first, second];
  const rest = new ReadableStream({
    async pull(controller) {
      const { done, value } = await (read.shift() ?? reader.read());
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(rest, { status, headers });
}
