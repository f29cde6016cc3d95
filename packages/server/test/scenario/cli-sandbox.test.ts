import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { berthIn, type BerthOptions, type BerthRun } from '../support/berth.ts';
import { workshop, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { scriptedAgent } from '../support/scripted-agent.ts';
import { until } from '../support/until.ts';

let service: Service;
let shop: Workshop;
let start: (args: string[], options?: BerthOptions) => BerthRun;

before(async () => {
  service = await startService();
  shop = await workshop(service);
  start = berthIn(shop.home, { BERTH_URL: service.url, BERTH_API_KEY: service.key });
  await berth(['agents', 'create', 'boxed']);
});
after(async () => {
  await shop?.close();
  await service?.end();
});

async function berth(args: string[], options: BerthOptions & { code?: number } = {}) {
  const ended = await start(args, options).ended;
  assert.equal(ended.code, options.code ?? 0, `berth ${args.join(' ')}\n${ended.stdout}\n${ended.stderr}`);
  assert.equal(`${ended.stdout}${ended.stderr}`.includes(service.key), false);
  return ended;
}

test('a sandbox is listed, shown, started, restarted, stopped and killed by the agent’s name', async () => {
  assert.match((await berth(['sandbox', 'show', 'boxed'])).stdout, /state +stopped/);
  assert.match((await berth(['sandbox', 'start', 'boxed'])).stdout, /state +running/);
  const list = JSON.parse((await berth(['sandbox', 'list', '--json'])).stdout) as {
    agentId: string;
    state: string;
  }[];
  const running = list.find(({ state }) => state === 'running')!;
  const table = await berth(['sandbox', 'list']);
  assert.match(table.stderr, /^AGENT +NAME +STATE /);
  assert.match(table.stdout, new RegExp(`^${running.agentId} +boxed +running `, 'm'));
  assert.match((await berth(['sandbox', 'restart', 'boxed'])).stdout, /state +running/);
  assert.match((await berth(['sandbox', 'stop', 'boxed'])).stdout, /state +stopped/);
  assert.match((await berth(['sandbox', 'kill', 'boxed'])).stdout, /state +stopped/);
});

test('exec gives input, variables and folder to a command, both outputs back, and ends with its code', async () => {
  const ended = await berth(
    [
      'sandbox',
      'exec',
      'boxed',
      '-i',
      '--env',
      'NAME=value',
      '--cwd',
      '/tmp',
      '--',
      'sh',
      '-c',
      'cat; pwd; echo "$NAME" >&2; exit 7',
    ],
    { stdin: 'typed\n', code: 7 },
  );
  assert.equal(ended.stdout, 'typed\n/tmp\n');
  assert.match(ended.stderr, /value\n/);
  const json = await berth(['sandbox', 'exec', 'boxed', '--json', '--', 'echo', 'hello']);
  assert.equal((JSON.parse(json.stdout) as { stdout: string }).stdout, 'hello\n');
  assert.match(
    (await berth(['sandbox', 'exec', 'boxed', '--', 'no-such-program'], { code: 1 })).stderr,
    /command/,
  );
  const late = await berth(['sandbox', 'exec', 'boxed', '--timeout', '0.3', '--', 'sleep', '60'], {
    code: 1,
  });
  assert.match(late.stderr, /too long/);
});

test('cp copies files and folders both ways, ls shows and rm deletes them', async () => {
  const local = join(shop.home, 'tree');
  mkdirSync(join(local, 'sub'), { recursive: true });
  writeFileSync(join(local, 'tool'), '#!/bin/sh\necho tool\n', { mode: 0o755 });
  writeFileSync(join(local, 'sub', 'data'), Buffer.from([0, 255, 10]));
  await berth(['sandbox', 'cp', local, 'boxed:copied']);
  await berth(['sandbox', 'cp', join(local, 'tool'), 'boxed:']);
  const ran = await berth([
    'sandbox',
    'exec',
    'boxed',
    '--',
    'sh',
    '-c',
    './tool; ./copied/tool; wc -c < copied/sub/data',
  ]);
  assert.equal(ran.stdout, 'tool\ntool\n3\n');
  const listed = (await berth(['sandbox', 'ls', 'boxed'])).stdout;
  assert.match(listed, /755 .* tool\n/);
  assert.match(listed, /copied\/\n/);
  const back = join(shop.home, 'back');
  await berth(['sandbox', 'cp', 'boxed:/workspace/copied', back]);
  assert.deepEqual(readFileSync(join(back, 'sub', 'data')), Buffer.from([0, 255, 10]));
  assert.equal(statSync(join(back, 'tool')).mode & 0o777, 0o755);
  await berth(['sandbox', 'cp', 'boxed:tool', join(shop.home, 'tool')]);
  assert.equal(readFileSync(join(shop.home, 'tool'), 'utf8'), '#!/bin/sh\necho tool\n');
  assert.match((await berth(['sandbox', 'rm', 'boxed', 'copied'], { code: 1 })).stderr, /add -r/);
  await berth(['sandbox', 'rm', 'boxed', 'copied', '-r']);
  assert.ok(!(await berth(['sandbox', 'ls', 'boxed'])).stdout.includes('copied'));
  assert.match((await berth(['sandbox', 'cp', 'boxed:gone', local], { code: 1 })).stderr, /not_found|404/);
});

test('cp says why the service refuses a path, and which file here cannot be read or written, without a stack', async () => {
  const made = 'ln -s /etc/passwd evil; ln -s / out; mkfifo pipe; mkdir folder; touch file';
  await berth(['sandbox', 'exec', 'boxed', '--', 'sh', '-c', made]);
  const here = join(shop.home, 'here');
  writeFileSync(here, 'x');
  const refusals: [from: string, to: string, reason: RegExp][] = [
    ['boxed:evil', shop.home, /^This is a symbolic link, .* \(conflict\)\n$/],
    ['boxed:out', shop.home, /^This is a symbolic link, .* \(conflict\)\n$/],
    ['boxed:out/etc/passwd', shop.home, /^There is no such file or folder .* \(not_found\)\n$/],
    ['boxed:pipe', shop.home, /^This is a pipe, .* \(conflict\)\n$/],
    [here, 'boxed:folder', /^There is a folder of this name\. \(conflict\)\n$/],
    [here, 'boxed:file/below', /^A part of the path is there and is no folder.* \(conflict\)\n$/],
    ['boxed:file', join(here, 'below'), /^ENOTDIR: [^\n]+\n$/],
    ['boxed:folder', here, /^EEXIST: [^\n]+\n$/],
  ];
  for (const [from, to, reason] of refusals)
    assert.match((await berth(['sandbox', 'cp', from, to], { code: 1 })).stderr, reason, `${from} ${to}`);
  const nowhere = join(shop.home, 'nowhere');
  await berth(['sandbox', 'cp', 'boxed:file', nowhere]);
  assert.equal(statSync(nowhere).size, 0);
  await berth(['sandbox', 'rm', 'boxed', 'folder', '-r']);
});

test('a snapshot is taken, listed, restored, given to another agent and deleted', async () => {
  await berth(['agents', 'create', 'second']);
  await berth(['sandbox', 'exec', 'boxed', '--', 'sh', '-c', 'echo kept > kept']);
  const { id } = JSON.parse((await berth(['sandbox', 'snapshot', 'boxed', 'first', '--json'])).stdout) as {
    id: string;
  };
  await berth(['sandbox', 'rm', 'boxed', 'kept']);
  assert.match((await berth(['sandbox', 'snapshots', 'boxed'])).stdout, /first\n/);
  await berth(['sandbox', 'restore', 'boxed', id]);
  await berth(['sandbox', 'restore', 'boxed', id, '--to', 'second']);
  for (const agent of ['boxed', 'second'])
    assert.match((await berth(['sandbox', 'ls', agent])).stdout, / kept\n/, agent);
  await berth(['sandbox', 'snapshots', 'delete', 'boxed', id]);
  assert.equal((await berth(['sandbox', 'snapshots', 'boxed'])).stdout, '');
});

test('a name that would play with the terminal is shown, not obeyed', async () => {
  await berth(['sandbox', 'exec', 'boxed', '--', 'sh', '-c', 'touch "$(printf "evil\\033[2Jx")"']);
  const { stdout } = await berth(['sandbox', 'ls', 'boxed']);
  assert.ok(!stdout.includes('\x1b') && stdout.includes('evil\\u001b[2Jx'));
});

test('leaving an exec ends the command', async () => {
  const run = start(['sandbox', 'exec', 'boxed', '--', 'sh', '-c', 'echo begun; exec sleep 4321']);
  await until('it runs', () => run.stdout().includes('begun'));
  run.child.kill('SIGINT');
  assert.equal((await run.ended).code, 2);
  await until('it is gone', async () => {
    const { stdout } = await berth([
      'sandbox',
      'exec',
      'boxed',
      '--',
      'sh',
      '-c',
      'cat /proc/[0-9]*/cmdline | tr "\\0" " "',
    ]);
    return !stdout.includes('sleep 4321');
  });
});

/** A user in front of a terminal of the sandbox: `script` of util-linux is one. */
function atTerminal(key: string) {
  const bin = fileURLToPath(new URL('../../../cli/bin/berth.mjs', import.meta.url));
  const user = spawn('script', ['-qfec', `${process.execPath} ${bin} sandbox terminal boxed`, '/dev/null'], {
    env: {
      PATH: process.env['PATH'],
      HOME: shop.home,
      TERM: 'xterm',
      BERTH_URL: service.url,
      BERTH_API_KEY: key,
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  user.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  const ended = new Promise<number | null>((resolve) => user.once('close', resolve));
  return { user, text: () => text, ended };
}

test('terminal opens a shell on the user’s own terminal and ends with its code', async () => {
  const { user, text, ended } = atTerminal(service.key);
  try {
    await until('there is a prompt', () => /[$#] /.test(text()));
    user.stdin.write('echo "$TERM" in-$((40+2)); tty\r');
    await until('it answers', () => /xterm in-42\s+\/dev\/pts/.test(text()));
    // Told by a program that then only waits: a shell that is about to start one loses the interrupt. What is typed has
    // no `begun` in it.
    user.stdin.write('echo be""gun > told; tail -f told\r');
    await until('it waits', () => text().includes('begun'));
    user.stdin.write('\x03');
    user.stdin.write('exit 9\r');
    assert.equal(await ended, 9, text());
    assert.equal(text().includes(service.key), false);
  } finally {
    user.kill('SIGKILL');
  }
});

test('a terminal whose key is revoked says so as it ends', async () => {
  const { body } = await service.api('POST', '/v1/api-keys', {
    name: 'short',
    scope: 'edit',
    binding: 'org-bound',
  });
  const { user, text, ended } = atTerminal(body.value);
  try {
    await until('there is a prompt', () => /[$#] /.test(text()));
    await service.api('DELETE', `/v1/api-keys/${body.key.id}`);
    assert.equal(await ended, 1, text());
    assert.match(text(), /berth: the key or the agent is no more\r\n/);
  } finally {
    user.kill('SIGKILL');
  }
});

test('acp says why the service has ended its connection', async () => {
  const run = start(['acp', 'boxed'], { isOpen: true });
  const line = (message: object) =>
    run.child.stdin!.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  line({ id: 0, method: 'initialize', params: { protocolVersion: 1 } });
  await until('it is connected', () => run.stdout().includes('"id":0'));
  // More at once than a client may send.
  for (let id = 1; id <= 1_000; id += 1) line({ id, method: '_example.com/nothing' });
  const { code, stderr, stdout } = await run.ended;
  assert.deepEqual([code, stderr], [1, 'berth: The service ended it: too fast.\n']);
  assert.match(stdout, /"error":\{[^}]*The service ended it: too fast\./);
});

test('what a run has made is listed and written into a folder, and what it asks is answered', async () => {
  const agent = await shop.agent(scriptedAgent, { name: 'scripted' });
  const { runId } = await agent.say('artifacts');
  const listed = (await berth(['runs', 'artifacts', runId])).stdout;
  assert.match(listed, /a-file .*file output\.txt text\/plain/);
  assert.match(listed, /a-link .*link https:\/\/example\.com\/output\.txt/);
  const folder = join(shop.home, 'made');
  await berth(['runs', 'artifacts', runId, '--to', folder]);
  assert.equal(readFileSync(join(folder, 'output.txt'), 'utf8'), 'tck');
  assert.equal(readFileSync(join(folder, 'Text'), 'utf8'), 'a text');
  // Nothing that is there is written over.
  const again = await berth(['runs', 'artifacts', runId, '--to', folder], { code: 1 });
  assert.match(again.stderr, /^EEXIST: [^\n]+\n$/);

  const asking = await agent.ask('ask');
  const question = await until('it asks', async () => {
    const { body } = await service.api('GET', `/v1/runs/${asking.runId}/events`);
    return body.events.find(({ type }: { type: string }) => type === 'input.requested')?.data;
  });
  await berth(['runs', 'respond', asking.runId, question.requestId], { code: 1 });
  assert.match((await berth(['runs', 'respond', asking.runId, question.requestId, 'blue'])).stdout, /status/);
  await until('it has ended', async () =>
    /completed/.test((await berth(['runs', 'show', asking.runId])).stdout),
  );
});
