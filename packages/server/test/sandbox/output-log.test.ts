import assert from 'node:assert/strict';
import {
  appendFileSync,
  chmodSync,
  closeSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { cutLog, logFileIn, openLog } from '../../src/sandbox/output-log.ts';
import { prepareRunDir } from '../../src/sandbox/volume.ts';

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

const noRoot = process.getuid?.() === 0 ? false : 'without root the sandbox runs as the service itself';

test('a log that is there when a sandbox is made ready stays closed to it', { skip: noRoot }, () => {
  const runDir = mkdtempSync('/tmp/berth-l-');
  try {
    const other = join(runDir, 'names.json');
    writeFileSync(other, '{}', { mode: 0o600 });
    closeSync(openLog(logFileIn(runDir)));
    const modes = () => [logFileIn(runDir), other].map((file) => statSync(file).mode & 0o777);
    prepareRunDir(runDir, { uid: 200_001, gid: 200_001 });
    assert.deepEqual(modes(), [0o600, 0o644]);
    // As services before this one have left it.
    chmodSync(logFileIn(runDir), 0o644);
    prepareRunDir(runDir, { uid: 200_001, gid: 200_001 });
    assert.deepEqual(modes(), [0o600, 0o644]);
  } finally {
    rmSync(runDir, { recursive: true });
  }
});
