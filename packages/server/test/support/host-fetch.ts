import { request } from 'node:http';
import { Readable } from 'node:stream';

/**
 * `fetch` that finds every host at one port of loopback, as a wildcard record would, and sends the host of the URL:
 * the resolver of a machine need not know names below `localhost`, and the fetch of Node lets nobody set `Host`.
 */
export function hostFetch(port: number): typeof fetch {
  return async (input, init) => {
    const asked = new Request(input, init);
    const body = asked.body === null ? null : Buffer.from(await asked.arrayBuffer());
    const url = new URL(asked.url);
    const headers: Record<string, string> = { ...Object.fromEntries(asked.headers), host: url.host };
    if (body) headers['content-length'] = String(body.length);
    return new Promise((resolve, reject) => {
      const sent = request(
        {
          host: '127.0.0.1',
          port,
          method: asked.method,
          path: url.pathname + url.search,
          headers,
          agent: false,
        },
        (answer) => {
          const fields = new Headers();
          for (let at = 0; at < answer.rawHeaders.length; at += 2)
            fields.append(answer.rawHeaders[at]!, answer.rawHeaders[at + 1]!);
          const status = answer.statusCode!;
          const isEmpty = status === 204 || status === 304 || asked.method === 'HEAD';
          if (isEmpty) answer.resume();
          const content = isEmpty ? null : (Readable.toWeb(answer) as ReadableStream<Uint8Array>);
          resolve(new Response(content, { status, headers: fields }));
        },
      );
      asked.signal.addEventListener('abort', () => sent.destroy(asked.signal.reason as Error), {
        once: true,
      });
      sent.on('error', reject);
      sent.end(body ?? undefined);
    });
  };
}
