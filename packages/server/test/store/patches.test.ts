import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const scripts = new URL('../../../../scripts/patches.mjs', import.meta.url);
const { applyPatches } = (await import(fileURLToPath(scripts))) as {
  applyPatches: (root: string) => string[];
};
const patch = (to: string): string => `diff --git a/src/a.js b/src/a.js
--- a/src/a.js
+++ b/src/a.js
@@ -1,2 +1,2 @@
 // first
-old
+${to}
`;

function tree(): { root: string; file: string; released: string; patchFile: string } {
  const root = mkdtempSync(join(tmpdir(), 'berth-patches-'));
  const folder = join(root, 'node_modules', 'driver');
  mkdirSync(join(root, 'patches'));
  mkdirSync(join(folder, 'src'), { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"version": "1.2.3"}');
  // The folder is a copy by hard links, as a cache or a second checkout may have made it.
  const released = join(root, 'released.js');
  writeFileSync(released, '// first\nold\n');
  const file = join(folder, 'src', 'a.js');
  linkSync(released, file);
  const patchFile = join(root, 'patches', 'driver-1.2.3.patch');
  writeFileSync(patchFile, patch('new'));
  return { root, file, released, patchFile };
}

for (const isCheckout of [false, true]) {
  test(`patches are applied once, and not through hard links, ${isCheckout ? 'in a checkout that ignores packages' : 'outside a checkout'}`, () => {
    const { root, file, released, patchFile } = tree();
    if (isCheckout) {
      execFileSync('git', ['init', '-q', root]);
      writeFileSync(join(root, '.gitignore'), 'node_modules/\n');
    }
    assert.deepEqual(applyPatches(root), []);
    assert.equal(readFileSync(file, 'utf8'), '// first\nnew\n');
    assert.equal(readFileSync(released, 'utf8'), '// first\nold\n');
    const { ino } = statSync(file);
    assert.deepEqual(applyPatches(root), []);
    assert.equal(statSync(file).ino, ino);

    // A run that ended before it could say that it was done.
    rmSync(join(root, 'node_modules', 'driver', '.berth-patch'));
    assert.deepEqual(applyPatches(root), []);
    assert.equal(statSync(file).ino, ino);

    // Another patch needs the package as it was released.
    writeFileSync(patchFile, patch('newer'));
    assert.deepEqual(applyPatches(root), ['driver']);
    assert.equal(readFileSync(file, 'utf8'), '// first\nnew\n');
    writeFileSync(file, '// first\nold\n');
    assert.deepEqual(applyPatches(root), []);
    assert.equal(readFileSync(file, 'utf8'), '// first\nnewer\n');
    rmSync(root, { recursive: true });
  });
}

test('a patch for another version than the installed one is refused by name', () => {
  const { root } = tree();
  writeFileSync(join(root, 'node_modules', 'driver', 'package.json'), '{"version": "1.2.4"}');
  assert.throws(() => applyPatches(root), /driver-1\.2\.3\.patch is for driver 1\.2\.3, not 1\.2\.4/);
  rmSync(root, { recursive: true });
});
