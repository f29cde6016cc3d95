import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The files of `templates/conformance-agent`, to be pushed as an agent's repository. */
export async function conformanceFiles(): Promise<Record<string, string>> {
  const folder = fileURLToPath(new URL('../../../../templates/conformance-agent', import.meta.url));
  const names = await readdir(folder);
  const texts = names.map(async (name) => [name, await readFile(join(folder, name), 'utf8')] as const);
  return Object.fromEntries(await Promise.all(texts));
}
