import type { OutgoingMail } from './provider.ts';

/** A plain-text message as bytes for the wire (RFC 5322, RFC 2045, RFC 2047). */
export function mimeOf(mail: OutgoingMail): string {
  const lines = [
    `From: ${mail.from}`,
    `To: ${mail.to}`,
    `Subject: ${encodeWords(mail.subject)}`,
    ...mail.headers.map(([name, value]) => `${name}: ${value}`),
    'MIME-Version: 1.0',
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: base64',
  ];
  const body = Buffer.from(mail.text).toString('base64').replace(/.{76}/g, '$&\r\n');
  return `${lines.map((line) => line.replace(/[\r\n]+/g, ' ')).join('\r\n')}\r\n\r\n${body}\r\n`;
}

/** Encoded words of at most 75 characters; a character is never cut. */
function encodeWords(text: string): string {
  // oxlint-disable-next-line no-control-regex
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  const words: string[] = [];
  let part = '';
  for (const char of text) {
    if (Buffer.byteLength(part + char) > 42) {
      words.push(part);
      part = '';
    }
    part += char;
  }
  words.push(part);
  return words.map((word) => `=?utf-8?B?${Buffer.from(word).toString('base64')}?=`).join(' ');
}
