import type { Socket } from 'node:net';
import { GrowingBytes } from '../domain/growing-bytes.ts';
import { limits } from '../domain/limits.ts';
import { readFirstBytes, type FirstBytes } from './client-hello.ts';

/** What a tunnel begins with. `pieces`: it begins like TLS, and came in too many of them. */
export type Start = FirstBytes | { kind: 'http' } | { kind: 'ended' } | { kind: 'pieces' };

/** TLS libraries send what they begin with in one piece or two; each more is work for all sandboxes. */
export const maxPieces = 256;

/** Reads until it is clear what the bytes are, and puts them back; the socket is paused then. */
export function readStart(client: Socket): Promise<Start> {
  return new Promise((resolve) => {
    const reader = new StartReader();
    const onData = (chunk: Buffer) => {
      const start = reader.push(chunk);
      if (start.kind !== 'more') end(start);
    };
    const onEnd = () => end(reader.bytes.length > 0 ? { kind: 'other' } : { kind: 'ended' });
    function end(start: Start): void {
      client.pause();
      client.off('data', onData).off('end', onEnd).off('close', onEnd);
      if (reader.bytes.length > 0 && !client.readableEnded) client.unshift(reader.bytes);
      resolve(start);
    }
    client.on('data', onData).on('end', onEnd).on('close', onEnd);
    client.resume();
  });
}

/** Not clear yet: look again from so many bytes on, or when there is one that does not go on like those before. */
interface Wait {
  kind: 'more';
  length: number;
  goesOn: RegExp | null;
}

/** Looks at the whole again only where what has come can decide something: the work grows with the bytes, not their square. */
export class StartReader {
  readonly #held = new GrowingBytes();
  #pieces = 0;
  #wait: Wait = { kind: 'more', length: 0, goesOn: null };

  get bytes(): Buffer {
    return this.#held.whole();
  }

  push(chunk: Buffer): Start {
    this.#held.add(chunk);
    this.#pieces += 1;
    const { length, goesOn } = this.#wait;
    if (this.#held.length >= length || (goesOn && !goesOn.test(chunk.toString('latin1')))) {
      const start = look(this.bytes);
      if (!('goesOn' in start)) return start;
      this.#wait = start;
    }
    if (this.#pieces < maxPieces) return this.#wait;
    // As with a first line that is too long: its parser reads on, and refuses what is none.
    return { kind: this.#wait.goesOn ? 'http' : 'pieces' };
  }
}

const methods = /^(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|CONNECT|TRACE|PROPFIND|REPORT|MKCOL) /;
/** A request line (RFC 9112, section 3) of any other method, and what can still become one. */
const requestLine = /^[A-Z-]+ .* HTTP\/\d/;
const unfinishedLine = /^[A-Z-]+( [^\p{Cc}]*)?$/u;

const emptyLines = /^[\r\n]*$/;
const method = /^[A-Z-]*$/;
const afterMethod = /^[^\p{Cc}]*$/u;

/** What a server might take for HTTP is HTTP: then its parser decides, and what it cannot read does not go out. */
function look(bytes: Buffer): Exclude<Start, { kind: 'more' }> | Wait {
  const first = readFirstBytes(bytes);
  if (first.kind === 'more') return { kind: 'more', length: nextInTls(bytes), goesOn: null };
  if (first.kind !== 'other') return first;
  const isLong = bytes.length >= limits.egressHeadBytes;
  const wait = (goesOn: RegExp): Wait => ({ kind: 'more', length: limits.egressHeadBytes, goesOn });
  // Servers skip empty lines before a request (RFC 9112, section 2.2).
  const text = bytes.toString('latin1').replace(/^[\r\n]+/, '');
  if (methods.test(text)) return { kind: 'http' };
  if (text === '') return isLong ? { kind: 'http' } : wait(emptyLines);
  const [line = ''] = text.split(/[\r\n]/, 1);
  if (line.length < text.length || isLong) return { kind: requestLine.test(line) ? 'http' : 'other' };
  if (!unfinishedLine.test(line)) return { kind: 'other' };
  return wait(line.includes(' ') ? afterMethod : method);
}

const recordHead = 5;
/** The heads of a record and of the message in it; what is wrong there is told at once. */
const headsBytes = 32;

/** At how many bytes something is decided: where the head of a record or the record ends. */
function nextInTls(bytes: Buffer): number {
  if (bytes.length < headsBytes) return bytes.length + 1;
  let at = 0;
  while (at + recordHead <= bytes.length) at += recordHead + bytes.readUInt16BE(at + 3);
  return at > bytes.length ? at : at + recordHead;
}
