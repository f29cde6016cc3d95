import assert from 'node:assert/strict';
import { appendFileSync, closeSync, mkdtempSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs';
import { after, test } from 'node:test';
import { cutLog, logFileIn, openLog } from '../../src/sandbox/output-log.ts';

const folder = mkdtempSync('/tmp/berth-l-');
after(() => rmSync(folder, { recursive: true }));
const path = logFileIn(folder);
const MIB = 1024 * 1024;

test('a log that has grown too large keeps its tail, and its writer goes on behind that', async () => {
  await cutLog(path);
  const fd = openLog(path);
  try {
    writeSync(fd, 'x'.repeat(MIB));
    await cutLog(path);
    assert.equal(statSync(path).size, MIB, 'it is not too large yet');
    appendFileSync(path, 'the last line\n');
    await Promise.all([cutLog(path), cutLog(path)]);
    writeSync(fd, 'one more\n');
    const text = readFileSync(path, 'utf8');
    assert.match(text, /^x+the last line\none more\n$/);
    assert.equal(text.length, MIB / 4 + 'one more\n'.length);
  } finally {
    closeSync(fd);
  }
});
