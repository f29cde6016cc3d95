import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

/** What was said first over a connection that a process of ours has made. */
export interface Caught {
  /** Of the peer's process. */
  pid: number;
  /** Of this machine, to which it came: an IPv4 one in its usual form. */
  address: string;
  head: string;
}

/**
 * A listener on every address of this machine; which of those who reach it belong to `pid` or descend from it. Others
 * may come by: its port is one that the kernel has given to somebody else before. `answer` is what they are told before the end.
 */
export async function trap(t: TestContext, pid: () => number, answer: () => string = () => '') {
  const caught: Caught[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    const { remotePort, localPort } = socket;
    // While it stands: of a connection that is closed nobody knows any more whose it was.
    const owner = remotePort === undefined ? null : ownerOf(remotePort, localPort!, familyOf(pid()));
    if (owner === null) return void socket.destroy();
    const address = (socket.localAddress ?? '').replace(/^::ffff:/, '');
    const found: Caught = { pid: owner, address, head: '' };
    caught.push(found);
    socket.once('data', (bytes: Buffer) => {
      found.head = bytes.toString('latin1');
      socket.end(answer(), () => socket.destroy());
    });
  });
  server.listen(0);
  await once(server, 'listening');
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port, caught };
}

/** The process of a family that holds the end of a TCP connection of this machine; null: none of them does. */
function ownerOf(port: number, peerPort: number, family: number[]): number | null {
  const hex = (number: number) => number.toString(16).toUpperCase().padStart(4, '0');
  const rows = ['tcp', 'tcp6'].flatMap((name) => read(`/proc/net/${name}`).split('\n'));
  const inodes = rows
    .map((row) => row.trim().split(/\s+/))
    .filter(([, local, remote]) => local?.endsWith(`:${hex(port)}`) && remote?.endsWith(`:${hex(peerPort)}`))
    .map((fields) => `socket:[${fields[9]}]`);
  return family.find((pid) => inodes.some((inode) => socketsOf(pid).has(inode))) ?? null;
}

function socketsOf(pid: number): Set<string> {
  const folder = `/proc/${pid}/fd`;
  try {
    return new Set(readdirSync(folder).map((name) => linkOf(`${folder}/${name}`)));
  } catch {
    // It has ended, or it belongs to somebody else.
    return new Set();
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** A process and its descendants. */
function familyOf(first: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({
      pid: Number(name),
      parent: Number(/^PPid:\s+(\d+)/m.exec(read(`/proc/${name}/status`))?.[1]),
    }));
  const family = [first];
  for (const pid of family)
    family.push(...parents.filter(({ parent }) => parent === pid).map((one) => one.pid));
  return family;
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
