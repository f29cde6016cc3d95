import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const page = readFileSync(new URL('../../../docs/protocol-checklist.md', import.meta.url), 'utf8');

/** The file of tests that the page calls `name`. */
function sourceOf(name: string): string {
  const found = [`./${name}.test.ts`, `./${name}.ts`]
    .map((path) => new URL(path, import.meta.url))
    .find((url) => existsSync(url));
  assert.ok(found, `there is no file of tests called ${name}`);
  return readFileSync(found, 'utf8');
}

const quoted = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');

test('every line of the checklist of protocols names tests, and each of them is there', () => {
  const items = page.split(/^(?=\d+\. |## )/m).filter((item) => /^\d/.test(item));
  assert.ok(items.length >= 29, `${items.length} lines`);
  for (const item of items) {
    const named = [...item.matchAll(/^ +- `([^`]+)`: (.+)$/gm)];
    assert.ok(named.length > 0, `no test shows this: ${item}`);
    assert.equal(
      named.length,
      [...item.matchAll(/^ +- /gm)].length,
      `a test is not named as it should: ${item}`,
    );
    for (const [, file, name] of named) {
      const isTest = new RegExp(`\\b(test|check)\\(\\s*['"\`]${quoted(name!)}['"\`],`);
      assert.match(sourceOf(file!), isTest, `${file}: ${name}`);
    }
  }
});
