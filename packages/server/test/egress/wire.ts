import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';

/** mulberry32: the same numbers for the same seed. */
export function randomFrom(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

/** What Node's TLS sends first for a name. */
export function clientHello(servername: string, options: object = {}): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        resolve(chunk);
        done();
      },
    });
    const tls = connectTls({ socket: wire, servername, ...options });
    tls.on('error', () => undefined);
  });
}
