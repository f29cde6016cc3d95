import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { endOfGit } from '../../src/repos/git-process.ts';

test('the end of a git that could not be started is told when it is asked for, and is no failure before', async () => {
  const child = spawn('/nonexistent/git', []);
  const end = endOfGit(child);
  await new Promise((resolve) => child.once('error', resolve));
  // A rejection would end the test process here, as it would have ended the service.
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(await end, null);
});

test('the end of git is its exit code, once its output is read', async () => {
  const child = spawn('/bin/sh', ['-c', 'echo said; exit 3']);
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  assert.equal(await endOfGit(child), 3);
  assert.equal(text, 'said\n');
});
