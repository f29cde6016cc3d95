import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** PEM files in `folder` of a certificate for `name` that vouches for itself. */
export function selfSigned(folder: string, name: string): { certFile: string; keyFile: string } {
  const [certFile, keyFile] = [join(folder, 'self.crt'), join(folder, 'self.key')];
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', keyFile];
  const names = ['-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name}`];
  const done = spawnSync('openssl', ['req', '-x509', ...key, ...names, '-out', certFile, '-days', '2']);
  if (done.status !== 0) throw new Error(done.stderr?.toString() ?? String(done.error));
  return { certFile, keyFile };
}
