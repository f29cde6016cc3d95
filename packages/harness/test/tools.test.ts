import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { ToolError } from '../src/tool.ts';
import type { Tool, ToolContext, ToolOutcome } from '../src/tool.ts';
import { bashTool } from '../src/tool-bash.ts';
import { askTool, publishTool } from '../src/tool-caller.ts';
import { editTool, readTool, writeTool } from '../src/tool-files.ts';
import { searchTool } from '../src/tool-search.ts';

type Run = (tool: Tool, input: Record<string, unknown>, more?: Partial<ToolContext>) => Promise<ToolOutcome>;

function toolGround(context: TestContext): { cwd: string; run: Run } {
  const cwd = mkdtempSync(join(tmpdir(), 'berth-tools-'));
  context.after(() => rmSync(cwd, { recursive: true, force: true }));
  let calls = 0;
  return {
    cwd,
    run: (tool, input, more = {}) =>
      tool.run(input, {
        cwd,
        signal: new AbortController().signal,
        mark: `${cwd}.${++calls}`,
        childEnv: async () => ({ PATH: '/usr/bin:/bin', GREETING: 'hello' }),
        onProgress: () => undefined,
        caller: { artifact: () => undefined, ask: async () => null },
        ...more,
      }),
  };
}

test('bash joins both outputs in their order and tells the exit code', async (t) => {
  const { run } = toolGround(t);
  const result = await run(bashTool, { command: 'echo $GREETING; echo two >&2; echo three; exit 4' });
  assert.deepEqual(result, { text: 'hello\ntwo\nthree\n[exit code: 4]', isError: true });
  assert.deepEqual(await run(bashTool, { command: 'true' }), { text: '[exit code: 0]', isError: false });
  assert.match((await run(bashTool, { command: 'kill -9 $$' })).text, /\[ended by SIGKILL\]/);
});

test('bash ends a command after its timeout, with all that it started', async (t) => {
  const { run } = toolGround(t);
  // Found by what it sleeps for: on a slow machine the time may be over before a file says its number.
  const seconds = `600.${process.pid}${randomInt(1e6)}`;
  const sleeps = () =>
    readdirSync('/proc').some((name) => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'latin1') === `sleep\0${seconds}\0`;
      } catch {
        return false;
      }
    });
  const result = await run(bashTool, { command: `sleep ${seconds} & wait`, timeout: 0.5 });
  assert.match(result.text, /ended after 0\.5 seconds/);
  assert.equal(result.isError, true);
  const endMs = Date.now() + 60_000;
  while (sleeps() && Date.now() < endMs) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(sleeps(), false);
});

test('bash returns while a server that it left in the background goes on', async (t) => {
  const { run, cwd } = toolGround(t);
  const result = await run(bashTool, { command: 'sleep 60 & echo $! > pid; echo started' });
  assert.equal(result.text, 'started\n[exit code: 0]');
  const pid = Number(readFileSync(join(cwd, 'pid'), 'utf8'));
  process.kill(pid, 0);
  process.kill(pid, 'SIGKILL');
});

test('bash keeps the beginning and the end of a long output and tells progress', async (t) => {
  const { run } = toolGround(t);
  const result = await run(bashTool, {
    command: 'echo first; head -c 3000000 /dev/zero | tr "\\0" x; echo; echo last',
  });
  assert.match(result.text, /^first\nx+\n\[\.\.\. \d+ bytes left out \.\.\.\]\nx+\nlast\n\[exit code: 0\]$/);
  assert.ok(result.text.length < 40_000);
  const progress: string[] = [];
  await run(bashTool, { command: 'echo begun; sleep 1.3' }, { onProgress: (text) => progress.push(text) });
  assert.deepEqual(progress, ['begun\n']);
});

test('bash refuses what cannot be a command', async (t) => {
  const { run } = toolGround(t);
  await assert.rejects(run(bashTool, {}), ToolError);
  await assert.rejects(run(bashTool, { command: 'a\0b' }), /NUL/);
  await assert.rejects(run(bashTool, { command: 'x'.repeat(200_000) }), /too long/);
  await assert.rejects(run(bashTool, { command: 'true', timeout: 'soon' }), /"timeout" must be a number/);
});

test('read gives text, parts of it, and folders', async (t) => {
  const { run, cwd } = toolGround(t);
  writeFileSync(join(cwd, 'f'), 'one\ntwo\nthree\n');
  mkdirSync(join(cwd, 'folder'));
  assert.equal((await run(readTool, { path: 'f' })).text, 'one\ntwo\nthree');
  assert.equal((await run(readTool, { path: 'f', offset: 2, limit: 1 })).text, 'two\n[lines 2 to 2 of 3]');
  assert.equal((await run(readTool, { path: '.' })).text, 'f\nfolder/');
  await assert.rejects(run(readTool, { path: 'f', offset: 9 }), /has 3 lines only/);
  await assert.rejects(run(readTool, { path: 'none' }), /none does not exist/);
});

test('read does not wait for pipes and does not show binary files', async (t) => {
  const { run, cwd } = toolGround(t);
  execFileSync('mkfifo', [join(cwd, 'pipe')]);
  writeFileSync(join(cwd, 'binary'), Buffer.from([1, 0, 2]));
  await assert.rejects(run(readTool, { path: 'pipe' }), /no regular file/);
  await assert.rejects(run(readTool, { path: '/dev/zero' }), /no regular file/);
  await assert.rejects(run(readTool, { path: 'binary' }), /binary file of 3 bytes/);
});

test('write makes folders, keeps the mode of a file and follows a link', async (t) => {
  const { run, cwd } = toolGround(t);
  await run(writeTool, { path: 'a/b/c', content: 'ü' });
  assert.equal(readFileSync(join(cwd, 'a/b/c'), 'utf8'), 'ü');
  writeFileSync(join(cwd, 'script'), 'old');
  chmodSync(join(cwd, 'script'), 0o755);
  symlinkSync('script', join(cwd, 'link'));
  await run(writeTool, { path: 'link', content: 'new' });
  assert.equal(readFileSync(join(cwd, 'script'), 'utf8'), 'new');
  assert.equal(statSync(join(cwd, 'script')).mode & 0o777, 0o755);
  await assert.rejects(run(writeTool, { path: 'a', content: 'x' }), ToolError);
});

test('edit replaces one exact piece, or says why not', async (t) => {
  const { run, cwd } = toolGround(t);
  const file = join(cwd, 'f');
  writeFileSync(file, 'a $1 b a');
  await run(editTool, { path: 'f', old: '$1 b', new: '$& $1' });
  assert.equal(readFileSync(file, 'utf8'), 'a $& $1 a');
  await assert.rejects(run(editTool, { path: 'f', old: 'a', new: 'b' }), /found 2 times/);
  await assert.rejects(run(editTool, { path: 'f', old: 'zzz', new: 'b' }), /not found/);
  await run(editTool, { path: 'f', old: 'a', new: 'b', all: true });
  assert.equal(readFileSync(file, 'utf8'), 'b $& $1 b');
});

test('parallel edits of one file are all kept', async (t) => {
  const { run, cwd } = toolGround(t);
  const words = Array.from({ length: 20 }, (_, index) => `word${index};`);
  writeFileSync(join(cwd, 'f'), words.join('\n'));
  await Promise.all(words.map((word) => run(editTool, { path: 'f', old: word, new: word.toUpperCase() })));
  assert.equal(readFileSync(join(cwd, 'f'), 'utf8'), words.join('\n').toUpperCase());
});

test('search finds text and names, without the folders that nobody means', async (t) => {
  const { run, cwd } = toolGround(t);
  for (const folder of ['src', '.git', 'node_modules']) mkdirSync(join(cwd, folder));
  for (const folder of ['src', '.git', 'node_modules'])
    writeFileSync(join(cwd, folder, 'a.ts'), 'const answer = 42;\n');
  writeFileSync(join(cwd, 'src', 'b.md'), 'answer 7\n');
  assert.equal((await run(searchTool, { pattern: 'answer = \\d+' })).text, 'src/a.ts:1:const answer = 42;');
  assert.equal((await run(searchTool, { pattern: 'answer', files: '*.md' })).text, 'src/b.md:1:answer 7');
  assert.equal((await run(searchTool, { files: '*.ts' })).text, 'src/a.ts');
  assert.deepEqual(await run(searchTool, { pattern: 'no such thing' }), {
    text: 'Nothing found.',
    isError: false,
  });
  assert.equal((await run(searchTool, { pattern: '(' })).isError, true);
  await assert.rejects(run(searchTool, {}), ToolError);
});

test('publish hands over a file with its name and media type, and says what it cannot hand over', async (t) => {
  const { run, cwd } = toolGround(t);
  writeFileSync(join(cwd, 'Report.MD'), '# é');
  writeFileSync(join(cwd, 'odd'), Buffer.from([1, 0, 2]));
  writeFileSync(join(cwd, 'big'), Buffer.alloc(4 * 1024 * 1024 + 1));
  const made: unknown[] = [];
  const caller = {
    artifact: (content: object, about: object) => void made.push([content, about]),
    ask: async () => null,
  };
  await run(publishTool, { file: 'Report.MD', title: 'The report' }, { caller });
  const done = await run(publishTool, { file: 'odd' }, { caller });
  assert.deepEqual(done, { text: 'The user has odd (3 bytes).', isError: false });
  const file = (name: string, mimeType: string, bytes: Buffer | string) => ({
    type: 'resource',
    resource: { uri: `file://${join(cwd, name)}`, mimeType, blob: Buffer.from(bytes).toString('base64') },
  });
  assert.deepEqual(made, [
    [file('Report.MD', 'text/markdown', '# é'), { id: join(cwd, 'Report.MD'), name: 'The report' }],
    [file('odd', 'application/octet-stream', Buffer.from([1, 0, 2])), { id: join(cwd, 'odd'), name: 'odd' }],
  ]);
  for (const file of ['none', '.', 'big'])
    await assert.rejects(run(publishTool, { file }, { caller }), ToolError);
});

test('ask gives the words of the answer, and says when there is none', async (t) => {
  const { run } = toolGround(t);
  let form: unknown;
  const answering = (said: Record<string, unknown> | null) => ({
    caller: {
      artifact: () => undefined,
      async ask(_message: string, asked: object) {
        form = asked;
        return said;
      },
    },
  });
  const input = { question: 'Which?', options: ['a', 'b', 'a', 7] };
  assert.equal((await run(askTool, input, answering({ answer: 'b' }))).text, 'b');
  const answer = { type: 'string', title: 'Answer', enum: ['a', 'b'] };
  assert.deepEqual(form, { type: 'object', properties: { answer }, required: ['answer'] });
  assert.equal((await run(askTool, { question: 'Why?' }, answering(null))).text, 'The user gave no answer.');
  await assert.rejects(run(askTool, {}, answering(null)), ToolError);
});
