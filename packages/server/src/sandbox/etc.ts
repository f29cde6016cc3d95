import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openFolder, putFile } from './put-file.ts';

/** What a sandbox sees as /etc, so that nothing of the host's own is there. */
const files: Record<string, string> = {
  passwd: [
    'root:x:0:0:root:/:/usr/sbin/nologin',
    'agent:x:1000:1000:agent:/home/agent:/bin/sh',
    'nobody:x:65534:65534:nobody:/:/usr/sbin/nologin',
    '',
  ].join('\n'),
  group: 'root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n',
  hosts: '127.0.0.1 localhost agent\n::1 localhost\n',
  hostname: 'agent\n',
  'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n',
  // Empty is 127.0.0.1: whoever answers there is in the sandbox (docs/egress.md), or nobody, which fails at once.
  'resolv.conf': '',
};

/** Host paths that hold nothing private and that programs of /usr need; bound live, so that host updates count. */
const borrowed = ['ssl/certs', 'pki/tls/certs', 'pki/ca-trust', 'ld.so.cache', 'alternatives'];

/** Writes the folder and returns the host paths to bind over it, as pairs of host path and path inside. */
export function writeEtc(folder: string): { hostPath: string; path: string }[] {
  openFolder(folder);
  for (const [name, text] of Object.entries(files)) putFile(join(folder, name), text, 0o644);
  return borrowed.flatMap((name) => {
    const hostPath = join('/etc', name);
    if (!existsSync(hostPath)) return [];
    const mountPoint = join(folder, name);
    if (statSync(hostPath).isDirectory()) openFolder(mountPoint);
    else {
      openFolder(dirname(mountPoint));
      putFile(mountPoint, '', 0o644);
    }
    return [{ hostPath, path: join('/etc', name) }];
  });
}
