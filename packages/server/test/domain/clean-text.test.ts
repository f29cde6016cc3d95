import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cleanText } from '../../src/domain/clean-text.ts';

test('each U+0000 and each lone surrogate becomes U+FFFD, and all else stays, however much of either there is', () => {
  const same = 'a\ufeffé ж 😀 \uffff';
  assert.equal(cleanText(same), same);
  assert.equal(cleanText(`\u0000${same}\u0000\ud800`), `\uFFFD${same}\uFFFD\uFFFD`);
  const many = 'ж\u0000😀'.repeat(50_000);
  assert.equal(cleanText(many), 'ж\uFFFD😀'.repeat(50_000));
});
