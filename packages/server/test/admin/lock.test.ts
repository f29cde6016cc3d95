import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

interface Entry {
  version?: string;
  optionalDependencies?: Record<string, string>;
}

const { packages } = JSON.parse(
  readFileSync(new URL('../../../../package-lock.json', import.meta.url), 'utf8'),
) as { packages: Record<string, Entry> };

/** Where Node would find it, from a package outwards. */
function findFrom(path: string, name: string): Entry | undefined {
  for (let at = path; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    const found = packages[`${at === '' ? '' : `${at}/`}node_modules/${name}`];
    if (found || at === '') return found;
  }
}

// npm leaves out packages of other platforms when it writes the lock over an installed tree; `npm ci` refuses such a lock.
test('the lock has every package that an installation on another platform would want', () => {
  const missing = Object.entries(packages).flatMap(([path, entry]) =>
    Object.keys(entry.optionalDependencies ?? {})
      .filter((name) => !findFrom(path, name)?.version)
      .map((name) => `${name} of ${path}`),
  );
  assert.deepEqual(missing, []);
});
