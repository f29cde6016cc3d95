import { convert } from 'html-to-text';
import PostalMime from 'postal-mime';
import { cleanText } from '../../../domain/clean-text.ts';
import { stripReply } from '../strip-reply.ts';
import {
  mailLimits,
  type MailInput,
  type MailProblem,
  type ReadAttachment,
  type ReadText,
} from './message.ts';
import { hasTooManyParts } from './parts.ts';

export class MailRefused extends Error {
  readonly reason: MailProblem;

  constructor(reason: MailProblem) {
    super(reason);
    this.reason = reason;
  }
}

/** Runs in the worker thread. Throws MailRefused. */
export async function readText(input: MailInput): Promise<ReadText> {
  if (input.form === 'mime') return readMime(Buffer.from(input.raw));
  const text = clip(input.text ?? (input.html === null ? '' : htmlText(input.html)));
  // The provider's own cut is better than a guess, when it left something.
  const stripped = input.stripped?.trim() ? clip(input.stripped) : stripReply(text);
  return { headers: [], text, stripped, attachments: [], leftOut: 0 };
}

async function readMime(raw: Buffer): Promise<ReadText> {
  if (raw.length > mailLimits.rawBytes) throw new MailRefused('too_large');
  if (hasTooManyParts(raw)) throw new MailRefused('too_many_parts');
  const parsed = await PostalMime.parse(raw, {
    maxNestingDepth: mailLimits.nesting,
    maxHeadersSize: mailLimits.headerBytes,
    attachmentEncoding: 'arraybuffer',
  }).catch((error: unknown) => {
    throw new MailRefused(/nesting|depth/i.test(String(error)) ? 'too_deep' : 'unreadable');
  });
  const text = clip(parsed.text ?? (parsed.html ? htmlText(parsed.html) : ''));
  const all: ReadAttachment[] = parsed.attachments.map((file) => ({
    name: cleanText(file.filename ?? 'file'),
    mediaType: cleanText(file.mimeType),
    bytes:
      typeof file.content === 'string'
        ? Buffer.from(file.content)
        : new Uint8Array(file.content as ArrayBuffer),
  }));
  const kept = withinLimits(all);
  return {
    headers: parsed.headers.map(({ key, value }): [string, string] => [key, cleanText(value)]),
    text,
    stripped: stripReply(text),
    attachments: kept,
    leftOut: all.length - kept.length,
  };
}

function withinLimits(files: ReadAttachment[]): ReadAttachment[] {
  let bytes = 0;
  return files.slice(0, mailLimits.attachments).filter((file) => {
    bytes += file.bytes.length;
    return bytes <= mailLimits.attachmentBytes;
  });
}

function htmlText(html: string): string {
  return convert(html, {
    wordwrap: false,
    limits: {
      maxInputLength: mailLimits.htmlChars,
      maxDepth: 60,
      maxChildNodes: 2_000,
      maxBaseElements: 10,
      ellipsis: '…',
    },
    selectors: [
      { selector: 'img', format: 'skip' },
      { selector: 'a', options: { hideLinkHrefIfSameAsText: true, ignoreHref: false, noAnchorUrl: true } },
      { selector: 'blockquote', format: 'blockquote', options: { trimEmptyLines: true } },
    ],
  });
}

function clip(text: string): string {
  return cleanText(text.length > mailLimits.textChars ? `${text.slice(0, mailLimits.textChars)}\n…` : text);
}
