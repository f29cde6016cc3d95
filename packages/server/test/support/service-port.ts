import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

/** Below it are the ports of well-known servers. */
const LEAST = 10_000;
const MOST = 65_535;
const FEWEST = 1_000;
const TRIES = 100;

/**
 * A port for a service, which takes it a moment later, and again after each restart. Whoever asks the kernel for any port
 * could be given it meanwhile, and all tests of a run do that all the time: so it is none of those that the kernel gives,
 * and none that another process of the run has.
 */
export async function servicePort(): Promise<number> {
  const [from, to] = notGiven();
  for (let tries = 0; tries < TRIES; tries += 1) {
    const port = randomInt(from, to + 1);
    if (isOurs(port) && (await isFree(port))) return port;
  }
  throw new Error(`No port from ${from} to ${to} is free.`);
}

/** The larger of the two ranges around those that the kernel gives (ip(7), ip_local_port_range). */
function notGiven(): [from: number, to: number] {
  let first = 32_768;
  let last = 60_999;
  try {
    const text = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8');
    [first, last] = text.trim().split(/\s+/).map(Number) as [number, number];
  } catch {
    // Another system, which gives about the same ones.
  }
  const below = first - LEAST;
  const above = MOST - last;
  if (Math.max(below, above) < FEWEST) return [LEAST, MOST];
  return below >= above ? [LEAST, first - 1] : [last + 1, MOST];
}

/** Whoever makes its file first has it, to the end of the run; alone, a process has them all. */
function isOurs(port: number): boolean {
  const shared = process.env['BERTH_TEST_SHARED_DIR'];
  if (!shared) return true;
  mkdirSync(shared, { recursive: true });
  try {
    writeFileSync(join(shared, `port-${port}`), '', { flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const listening = new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => resolve(true));
  });
  if (!(await listening)) return false;
  server.close();
  await once(server, 'close');
  return true;
}
