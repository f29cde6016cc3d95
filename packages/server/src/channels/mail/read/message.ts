/** What goes to the worker thread: bytes of strangers. */
export type MailInput =
  | { form: 'mime'; raw: Uint8Array }
  | { form: 'fields'; text: string | null; html: string | null; stripped: string | null };

export interface ReadAttachment {
  name: string;
  mediaType: string;
  bytes: Uint8Array;
}

/** A mail as text. */
export interface ReadText {
  /** Empty for `fields`, whose headers the caller has. */
  headers: [name: string, value: string][];
  /** The whole text, cut at `mailLimits.textChars`. */
  text: string;
  /** What is new in it. */
  stripped: string;
  attachments: ReadAttachment[];
  /** Attachments beyond the limits, which were left out. */
  leftOut: number;
}

export type ReadResult = { ok: true; mail: ReadText } | { ok: false; reason: MailProblem };

/** A mail that cannot be read is kept, and no attempt is made again. */
export type MailProblem = 'too_large' | 'too_many_parts' | 'too_deep' | 'unreadable' | 'took_too_long';

export const mailLimits = {
  rawBytes: 35 * 1024 * 1024,
  parts: 200,
  nesting: 30,
  headerBytes: 256 * 1024,
  textChars: 256 * 1024,
  htmlChars: 1024 * 1024,
  attachments: 50,
  attachmentBytes: 25 * 1024 * 1024,
  /** Processor time after which the thread is ended; six times as long in any case. */
  killMs: 10_000,
  /** Of the thread's heap. */
  heapMiB: 192,
} as const;
