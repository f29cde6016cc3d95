import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { GitTarget, GitWire } from '../../src/domain/ports/repos.ts';

/** What the server does with a request before it answers as git; true: it has answered itself. */
export type Intercept = (request: IncomingMessage, response: ServerResponse) => boolean | Promise<boolean>;

/**
 * Somebody else's git server on loopback: https with a certificate of an authority of its own, for the names
 * `git.test` and `other.test` and for 127.0.0.1. It serves `/<agentId>.git` from `wire`.
 */
export async function httpsGit(folder: string, wire: GitWire) {
  const caFile = await makeCertificates(folder);
  const state: { intercept: Intercept; requests: string[] } = { intercept: () => false, requests: [] };
  const server = createServer(
    { key: await readFile(join(folder, 'host.key')), cert: await readFile(join(folder, 'host.crt')) },
    (request, response) => {
      state.requests.push(`${request.method} ${request.headers.host} ${request.url}`);
      void Promise.resolve(state.intercept(request, response)).then((done) => {
        if (done) return;
        const target = targetOf(request);
        if (target) return wire.handle(target, request, response);
        response.writeHead(404).end();
      });
    },
  );
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    caFile,
    state,
    port: (server.address() as AddressInfo).port,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function targetOf(request: IncomingMessage): GitTarget | null {
  const match = /^\/([0-9a-f-]{36})\.git\/(info\/refs\?service=)?(git-upload-pack)$/.exec(request.url ?? '');
  if (!match) return null;
  return {
    agentId: match[1]!,
    orgId: match[1]!,
    service: 'git-upload-pack',
    advertise: match[2] !== undefined,
  };
}

async function makeCertificates(folder: string): Promise<string> {
  const openssl = (...args: string[]): void => {
    const done = spawnSync('openssl', args, { cwd: folder });
    if (done.status !== 0) throw new Error(done.stderr.toString());
  };
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl(
    'req',
    '-x509',
    ...key,
    '-keyout',
    'ca.key',
    '-out',
    'ca.crt',
    '-days',
    '2',
    '-subj',
    '/CN=Test CA',
  );
  const names = 'subjectAltName=DNS:git.test,DNS:other.test,IP:127.0.0.1';
  openssl(
    'req',
    ...key,
    '-keyout',
    'host.key',
    '-out',
    'host.csr',
    '-subj',
    '/CN=git.test',
    '-addext',
    names,
  );
  const sign = ['x509', '-req', '-in', 'host.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial'];
  openssl(...sign, '-out', 'host.crt', '-days', '2', '-copy_extensions', 'copy');
  return join(folder, 'ca.crt');
}
