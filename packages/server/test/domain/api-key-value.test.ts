import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { newKeyValue, parseKeyValue } from '../../src/domain/api-key-value.ts';

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

test('a key value is svc_live_, 43 base62 digits and the CRC-32 of all that as 6 more', () => {
  for (let i = 0; i < 200; i += 1) {
    const { value, hash, prefix } = newKeyValue();
    assert.match(value, /^svc_live_[0-9A-Za-z]{49}$/);
    assert.equal(prefix, value.slice(0, 15));
    assert.equal(hash, createHash('sha256').update(value).digest('base64url'));
    const check = [...value.slice(52)].reduce((sum, digit) => sum * 62 + DIGITS.indexOf(digit), 0);
    assert.equal(check, crc32(value.slice(0, 52)));
    assert.deepEqual(parseKeyValue(value), { hash, prefix });
  }
});

test('every mistyped character, cut or added text makes a key value malformed', () => {
  const { value } = newKeyValue();
  for (let i = 0; i < value.length; i += 1) {
    const other = value[i] === 'x' ? 'y' : 'x';
    assert.equal(parseKeyValue(value.slice(0, i) + other + value.slice(i + 1)), null, `at ${i}`);
  }
  for (const text of ['', value.slice(0, -1), `${value}0`, ` ${value}`, `${value}\n`, value.toUpperCase()]) {
    assert.equal(parseKeyValue(text), null);
  }
});
