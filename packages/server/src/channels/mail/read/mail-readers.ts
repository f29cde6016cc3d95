import { createMailReader, type MailReader } from './mail-reader.ts';
import type { MailInput, ReadResult } from './message.ts';

export interface MailReaders {
  /** Never rejects. Of each owner in the order asked; nobody waits for a mail of another owner as long as a thread is left. */
  read(owner: string, input: MailInput): Promise<ReadResult>;
  close(): Promise<void>;
}

interface Waiting {
  owner: string;
  input: MailInput;
  done: (result: ReadResult) => void;
}

/** One more than anybody may hold with mail that is made to take long. */
const threads = 2;
const perOwner = threads - 1;

/** A few threads that read mail, the last of which is always left for others than those whose mail is being read. */
export function createMailReaders(makeReader: () => MailReader = createMailReader): MailReaders {
  const free = Array.from({ length: threads }, () => makeReader());
  const all = [...free];
  const waiting: Waiting[] = [];
  const reading = new Map<string, number>();

  function begin(): void {
    for (;;) {
      const index = waiting.findIndex(({ owner }) => (reading.get(owner) ?? 0) < perOwner);
      if (index === -1) return;
      const reader = free.shift();
      if (!reader) return;
      void work(reader, waiting.splice(index, 1)[0]!);
    }
  }

  async function work(reader: MailReader, { owner, input, done }: Waiting): Promise<void> {
    reading.set(owner, (reading.get(owner) ?? 0) + 1);
    const result = await reader.read(input);
    const left = reading.get(owner)! - 1;
    if (left === 0) reading.delete(owner);
    else reading.set(owner, left);
    // In front, so that the second thread is begun only when it is needed.
    free.unshift(reader);
    done(result);
    begin();
  }

  return {
    read: (owner, input) =>
      new Promise((done) => {
        waiting.push({ owner, input, done });
        begin();
      }),
    async close() {
      for (const { done } of waiting.splice(0)) done({ ok: false, reason: 'unreadable' });
      await Promise.all(all.map((reader) => reader.close()));
    },
  };
}
