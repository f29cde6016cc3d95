import { createSocket } from 'node:dgram';

/** 198.18.0.0/15, the range for tests of networks (RFC 2544): no host on the internet has such an address. */
const firstAddress = (198 << 24) + (18 << 16);
const addressCount = 1 << 17;
/** Names that are kept; the oldest address is given anew. */
const maxNames = 50_000;

/** Addresses that stand for names. The same name keeps its address while it is known. */
export class SyntheticNames {
  readonly #addresses = new Map<string, number>();
  readonly #names = new Map<number, string>();
  /** Goes through the names in their order, once: to begin anew for each would pass by all that were forgotten. */
  readonly #oldest = this.#addresses.keys();
  #next = 1;

  addressOf(name: string): number {
    const known = this.#addresses.get(name);
    if (known !== undefined) return known;
    if (this.#addresses.size >= maxNames) this.#forget(this.#oldest.next().value!);
    while (this.#names.has(this.#next)) this.#next = (this.#next % (addressCount - 2)) + 1;
    this.#addresses.set(name, this.#next);
    this.#names.set(this.#next, name);
    return this.#next;
  }

  /** The name that a dotted address stands for, or null. */
  nameOf(address: string): string | null {
    const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
    return this.#names.get(value - (firstAddress >>> 0)) ?? null;
  }

  #forget(name: string): void {
    this.#names.delete(this.#addresses.get(name)!);
    this.#addresses.delete(name);
  }
}

/** Answers every name on the resolver's default place, 127.0.0.1:53 (RFC 1035): nothing leaves the sandbox by names. */
export async function serveDns(names: SyntheticNames): Promise<void> {
  const socket = createSocket('udp4');
  socket.unref();
  socket.on('message', (query, from) => {
    const answer = answerQuery(query, names);
    if (answer) socket.send(answer, from.port, from.address, () => undefined);
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    socket.bind(53, '127.0.0.1', () => {
      socket.off('error', reject);
      socket.on('error', () => undefined);
      resolve();
    });
  });
}

const typeA = 1;
const classIn = 1;
const ttlSeconds = 60;

/** Null for what is no query with one question. Only A has an answer; every other type exists and is empty. */
export function answerQuery(query: Buffer, names: SyntheticNames): Buffer | null {
  // A response, an operation other than QUERY, or another number of questions.
  if (query.length < 17 || (query[2]! & 0xf8) !== 0 || query.readUInt16BE(4) !== 1) return null;
  const question = readQuestion(query);
  if (!question) return null;
  const hasAddress = question.type === typeA && question.class === classIn;
  const head = Buffer.from(query.subarray(0, 12));
  // Response, recursion available; the query's wish for recursion stays.
  head.writeUInt16BE(0x8080 | (query.readUInt16BE(2) & 0x0100), 2);
  head.writeUInt16BE(hasAddress ? 1 : 0, 6);
  head.writeUInt32BE(0, 8);
  const parts = [head, query.subarray(12, question.end)];
  if (hasAddress) {
    const record = Buffer.alloc(16);
    // The name is the question's.
    record.writeUInt16BE(0xc00c, 0);
    record.writeUInt16BE(typeA, 2);
    record.writeUInt16BE(classIn, 4);
    record.writeUInt32BE(ttlSeconds, 6);
    record.writeUInt16BE(4, 10);
    const isLocal = question.name === 'localhost' || question.name.endsWith('.localhost');
    const address = isLocal ? 0x7f000001 : (firstAddress >>> 0) + names.addressOf(question.name);
    record.writeUInt32BE(address >>> 0, 12);
    parts.push(record);
  }
  return Buffer.concat(parts);
}

function readQuestion(query: Buffer): { name: string; type: number; class: number; end: number } | null {
  const labels: string[] = [];
  let at = 12;
  for (;;) {
    const length = query[at];
    // A pointer has no place in the only name of a query.
    if (length === undefined || length > 63) return null;
    at += 1;
    if (length === 0) break;
    labels.push(query.toString('latin1', at, at + length).toLowerCase());
    at += length;
    if (at > 12 + 255) return null;
  }
  const name = labels.join('.');
  if (at + 4 > query.length || !/^[a-z0-9_.-]{1,253}$/.test(name)) return null;
  return { name, type: query.readUInt16BE(at), class: query.readUInt16BE(at + 2), end: at + 4 };
}
