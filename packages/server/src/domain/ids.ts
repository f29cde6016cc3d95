import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(4096);
let poolUsed = pool.length;
let lastMs = 0;
let counter = 0;

/**
 * A UUID version 7 (RFC 9562, section 5.7, method 1): 48 bits of Unix milliseconds, then a 12-bit counter that
 * keeps ids made by one process in the same millisecond in order, then 62 random bits. Newest first is id order.
 */
export function newId(): string {
  let nowMs = Date.now();
  if (nowMs <= lastMs) {
    counter += 1;
    nowMs = lastMs;
    if (counter > 0xfff) {
      counter = 0;
      nowMs = lastMs + 1;
    }
  } else {
    counter = 0;
  }
  lastMs = nowMs;
  if (poolUsed + 8 > pool.length) {
    randomFillSync(pool);
    poolUsed = 0;
  }
  const random = pool.toString('hex', poolUsed, poolUsed + 8);
  const variant = ((pool[poolUsed]! & 0x3f) | 0x80).toString(16);
  poolUsed += 8;
  const time = nowMs.toString(16).padStart(12, '0');
  const low = (0x7000 | counter).toString(16);
  return `${time.slice(0, 8)}-${time.slice(8)}-${low}-${variant}${random.slice(2, 4)}-${random.slice(4)}`;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether a text has the shape of an id. What has not is answered like an id that does not exist. */
export function isId(text: string): boolean {
  return UUID.test(text);
}
