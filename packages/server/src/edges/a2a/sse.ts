import type { HostCall } from '../hosts/host-edge.ts';

/** One event of a stream: its data, and the seq of the event of the log that it tells (0 = of none). */
export interface Framed {
  seq: number;
  data: unknown;
}

/**
 * Answers with server-sent events, no faster than the client reads. What goes wrong before the first event is thrown;
 * later it is told by `onError` as the last event.
 */
export async function streamAnswer(
  call: HostCall,
  items: AsyncGenerator<Framed, void, undefined>,
  stop: () => void,
  onError: (error: unknown) => string,
): Promise<Response> {
  const first = await items.next();
  return call.stream(
    () => '',
    async (sink) => {
      let isStopped = false;
      const writeAll = async () => {
        try {
          for (let item = first; !item.done && !isStopped; item = await items.next()) {
            sink.raw(frameOf(item.value));
            if (sink.isFull) await sink.drained();
          }
        } finally {
          // One that is left before its end follows its run no more.
          await items.return();
        }
      };
      const pump = async () => {
        try {
          await writeAll();
        } catch (error) {
          sink.raw(onError(error));
        }
        sink.end();
      };
      // The first event leaves with the head.
      queueMicrotask(() => void pump());
      return () => {
        isStopped = true;
        stop();
      };
    },
  );
}

function frameOf({ seq, data }: Framed): string {
  return `${seq > 0 ? `id: ${seq}\n` : ''}data: ${JSON.stringify(data)}\n\n`;
}
