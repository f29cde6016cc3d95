import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

export type Dialogue = Awaited<ReturnType<typeof dialogue>>;

/** One connection of SMTP, line by line. `from` is the address on loopback from which it comes. */
export async function dialogue(to: number, from = '127.0.0.1') {
  let text = '';
  let waiting: (() => void) | null = null;

  function attach<S extends Socket>(to: S): S {
    to.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      waiting?.();
    });
    to.on('error', () => undefined);
    to.on('close', () => waiting?.());
    return to;
  }
  let socket = attach(connect({ port: to, host: '127.0.0.1', localAddress: from }));

  /** All lines of the next answer; of a connection that has ended it is `closed`. */
  async function answer(): Promise<string[]> {
    for (;;) {
      const lines = text.split('\r\n');
      const end = lines.findIndex((line, index) => index < lines.length - 1 && /^\d{3} /.test(line));
      if (end >= 0) {
        text = lines.slice(end + 1).join('\r\n');
        return lines.slice(0, end + 1);
      }
      if (socket.closed) return ['closed'];
      await new Promise<void>((resolve) => (waiting = resolve));
    }
  }
  const last = async (): Promise<string> => (await answer()).at(-1)!;

  await once(socket, 'connect');
  return {
    greeting: await last(),
    /** Resolves with the last line of the answer. */
    say(line: string): Promise<string> {
      socket.write(`${line}\r\n`);
      return last();
    },
    /** Resolves with what the service says that it can do. */
    async hello(): Promise<string[]> {
      socket.write('EHLO sender.example\r\n');
      return (await answer()).map((line) => line.slice(4));
    },
    /** What comes next without having been asked for. */
    next: last,
    /** Sends `before` in the same segment, then speaks TLS; `answered` is what came in clear text. */
    async secure(ca: Buffer, name: string, before = ''): Promise<{ answered: string }> {
      const plain = socket;
      plain.write(`STARTTLS\r\n${before}`);
      const answered = await last();
      const encrypted = connectTls({ socket: plain, ca, servername: name });
      plain.removeAllListeners('data');
      await once(encrypted, 'secureConnect');
      socket = attach(encrypted);
      return { answered: answered + text };
    },
    write: (bytes: string) => socket.write(bytes),
    isClosed: () => socket.closed,
    close: () => socket.destroy(),
  };
}
