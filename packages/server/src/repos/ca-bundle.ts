import { readFile, rename, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';

const systemBundles = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/** PEM: the system's authorities and the operator's own. A machine without a bundle gets the one that comes with Node. */
export async function readAuthorities(extraCaFiles: readonly string[]): Promise<string> {
  const parts = [await systemAuthorities()];
  for (const file of extraCaFiles) parts.push(await readFile(file, 'utf8'));
  return `${parts.join('\n')}\n`;
}

/** One PEM file, because git takes a single file that replaces the system's. */
export async function writeCaBundle(folder: string, extraCaFiles: readonly string[]): Promise<string> {
  const path = join(folder, 'authorities.pem');
  const aside = `${path}.${randomBytes(6).toString('hex')}`;
  await writeFile(aside, await readAuthorities(extraCaFiles), { mode: 0o644 });
  await rename(aside, path);
  return path;
}

async function systemAuthorities(): Promise<string> {
  for (const path of systemBundles) {
    const text = await readFile(path, 'utf8').catch(() => '');
    if (text.includes('BEGIN CERTIFICATE')) return text;
  }
  return rootCertificates.join('\n');
}
