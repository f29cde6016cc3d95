import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { nowhere } from '../support/secret-search.ts';

test('what no test may find is found in an output, a text and a file, as it is and within every usual form', (t) => {
  const dataDir = mkdtempSync(join(tmpdir(), 'berth-search-'));
  t.after(() => rmSync(dataDir, { recursive: true, force: true }));
  const file = join(dataDir, 'some.db');
  // Those whose base64 has letters that only that of URLs has otherwise, and random ones of every length in groups of three.
  const secrets = [
    'sk>>>???>>>???>>>???',
    ...[20, 21, 22].map((bytes) => randomBytes(bytes).toString('hex').slice(1)),
  ];
  for (const secret of secrets) {
    const shown = [
      secret,
      Buffer.from(secret).toString('hex'),
      Buffer.from(secret).toString('hex').toUpperCase(),
    ];
    for (const before of ['', 'a', 'ab', 'user:'])
      for (const after of ['', '\n', '; and more'])
        for (const form of ['base64', 'base64url'] as const)
          shown.push(Buffer.from(before + secret + after).toString(form));
    for (const form of shown) {
      const text = `before ${form} after`;
      const isFound = /^the secret is in /;
      const empty = { dataDir, logs: () => '' };
      writeFileSync(file, '');
      nowhere(empty, secret, ['nothing']);
      assert.throws(() => nowhere({ ...empty, logs: () => text }, secret, []), { message: isFound }, form);
      assert.throws(() => nowhere(empty, secret, ['', text]), { message: isFound }, form);
      writeFileSync(file, text);
      assert.throws(() => nowhere(empty, secret, []), { message: /some\.db/ }, form);
    }
  }
});
