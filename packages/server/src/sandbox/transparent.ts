import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { started } from './started.ts';

const NSENTER = '/usr/bin/nsenter';
const ipPaths = ['/usr/sbin/ip', '/sbin/ip', '/usr/bin/ip'];

/** Lines that say what is missing for transparent egress; empty when all is there. */
export function transparentPrograms(): string[] {
  const lines: string[] = [];
  if (!existsSync(NSENTER)) lines.push(`${NSENTER} is missing: apt-get install -y util-linux.`);
  if (!ipPaths.some(existsSync)) lines.push('ip is missing: apt-get install -y iproute2.');
  return lines;
}

/**
 * Makes every IPv4 address local in the network namespace of a sandbox that was made but does not run yet, and lets any
 * user listen on any port there. A program inside that connects anywhere then reaches whoever listens in the sandbox,
 * who sees the wanted address as its own. The sandbox has no right to change that. Only root can do this from outside.
 */
export async function openEveryAddress(initPid: number): Promise<void> {
  const ip = ipPaths.find(existsSync);
  if (ip === undefined || transparentPrograms().length > 0)
    throw new Error(`Transparent egress is not possible: ${transparentPrograms().join(' ')}`);
  const script = [
    'set -e',
    'echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start',
    `${ip} link set lo up`,
    `exec ${ip} route add local 0.0.0.0/0 dev lo`,
  ].join('\n');
  const child = started(
    spawn(NSENTER, [`--net=/proc/${initPid}/ns/net`, '/bin/sh', '-c', script], {
      env: { LC_ALL: 'C' },
      stdio: ['ignore', 'ignore', 'pipe'],
    }),
  );
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`Transparent egress could not be set up: ${errors.trim()}`);
}
