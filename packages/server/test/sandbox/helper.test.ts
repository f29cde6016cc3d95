import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '../support/until.ts';
import { allPids, isRunning, startTime, statFields } from '../../src/sandbox/processes.ts';
import { Helper, hex, missingHelper, PERL, type HelperOrder } from '../../src/sandbox/helper.ts';

const skip = missingHelper(PERL) ?? false;
/** An order that is understood and cannot be done: there is no such folder, and only root may map users. */
const ordered = (helper: Helper): Promise<string> =>
  helper.ask('mount', [0, 0, 0, 0, hex('/no/such/folder')]);
const whyNot = /^(open_tree|uid_map|unshare)/;

/** Whoever writes the maps of a namespace for somebody else. */
const onlyRoot = process.getuid?.() === 0 ? skip : 'Only root mounts.';

const childrenOf = (pid: number): number[] =>
  allPids().filter((child) => statFields(child)?.[1] === String(pid));

/** What its descriptors are of; nothing when it has ended. */
function openIn(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  } catch {
    return [];
  }
}

const hasUserNamespace = (pid: number): boolean => openIn(pid).some((link) => link.startsWith('user:'));

/** A helper with so many children that are ready to mount. */
async function expecting(count: number, answerMs?: number) {
  const helper = new Helper(PERL, 'test', answerMs);
  const { pid = 0 } = helper.begin();
  helper.expectMounts(count);
  const ready = (): number[] => childrenOf(pid).filter(hasUserNamespace);
  await until('they are ready', () => ready().length === count);
  return { helper, pid, children: ready() };
}

test('a helper that could not be started is started with the next order', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-helper-'));
  const perl = join(folder, 'perl');
  const helper = new Helper(perl, 'test');
  try {
    assert.equal(await ordered(helper), 'the helper ended');
    writeFileSync(perl, `#!/bin/sh\nexec ${PERL} "$@"\n`);
    chmodSync(perl, 0o755);
    assert.match(await ordered(helper), whyNot);
  } finally {
    helper.close();
    rmSync(folder, { recursive: true });
  }
});

test('a helper that stands still is replaced, and one that was killed', { skip }, async () => {
  const helper = new Helper(PERL, 'test', 1_000);
  try {
    const still = helper.begin();
    still.kill('SIGSTOP');
    const [first, second] = await Promise.all([ordered(helper), ordered(helper)]);
    assert.deepEqual([first, second].sort(), ['no answer', 'the helper ended']);
    // A machine that is slow right now may take longer for one, too.
    const isAnswered = async () => whyNot.test(await ordered(helper));
    await until('the next one answers', isAnswered);
    const killed = helper.begin();
    assert.notEqual(killed.pid, still.pid);
    killed.kill('SIGKILL');
    await new Promise((resolve) => killed.once('exit', resolve));
    await until('the one after it answers', isAnswered);
  } finally {
    helper.close();
  }
});

test('a helper ends with its service, also one that stands still', { skip }, async () => {
  const file = JSON.stringify(new URL('../../src/sandbox/helper.ts', import.meta.url).href);
  const program = `import { Helper, hex } from ${file};
    const helper = new Helper(${JSON.stringify(PERL)}, 'test');
    const { pid } = helper.begin();
    await helper.ask('mount', [0, 0, 0, 0, hex('/no/such/folder')]);
    console.log(pid);
    setInterval(() => {}, 60_000);`;
  const service = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let pid = 0;
  try {
    const [told] = (await once(service.stdout, 'data')) as [Buffer];
    pid = Number(told.toString());
    const since = startTime(pid)!;
    process.kill(pid, 'SIGSTOP');
    service.kill('SIGKILL');
    await until('it has ended', () => !isRunning(pid, since));
    pid = 0;
  } finally {
    service.kill('SIGKILL');
    if (pid > 0) process.kill(pid, 'SIGKILL');
  }
});

test(
  'a mount that was expected is done by a process that waits for it, and that ends with its helper',
  { skip: onlyRoot },
  async () => {
    const { helper, children } = await expecting(1, 1_000);
    const [child = 0] = children;
    const since = startTime(child)!;
    try {
      process.kill(child, 'SIGSTOP');
      assert.equal(await ordered(helper), 'no answer');
      await until('it has ended', () => !isRunning(child, since));
    } finally {
      helper.close();
    }
  },
);

test(
  'as many processes wait to mount as mounts are expected, up to a few, and each does one',
  { skip: onlyRoot },
  async () => {
    const { helper, pid } = await expecting(3);
    try {
      assert.match(await ordered(helper), whyNot);
      await until('two are left', () => childrenOf(pid).length === 2);
      helper.expectMounts(1);
      await until('one is left', () => childrenOf(pid).length === 1);
      helper.expectMounts(1_000);
      await until('there are eight', () => childrenOf(pid).filter(hasUserNamespace).length === 8);
      assert.equal(childrenOf(pid).length, 8);
      const said = await Promise.all(Array.from({ length: 10 }, () => ordered(helper)));
      for (const word of said) assert.match(word, whyNot);
      await until('none is left', () => childrenOf(pid).length === 0);
    } finally {
      helper.close();
    }
  },
);

test('a process that was killed while it waited to mount is not missed', { skip: onlyRoot }, async () => {
  const { helper, pid, children } = await expecting(1);
  try {
    // It hears of the end and of the order at once.
    process.kill(pid, 'SIGSTOP');
    process.kill(children[0]!, 'SIGKILL');
    await until('it has ended', () => statFields(children[0]!)?.[0] === 'Z');
    const said = ordered(helper);
    process.kill(pid, 'SIGCONT');
    assert.match(await said, whyNot);
  } finally {
    helper.close();
  }
});

/** cat, as if it were bwrap. */
const catWords = [hex('/bin/cat'), '0', hex('cat'), '-', '-', '-', '-', '-', 'in', 'out', 'out', 'info'];

test(
  'a process that waits to mount holds no pipe of a program that is being launched',
  { skip: onlyRoot },
  async () => {
    const helper = new Helper(PERL, 'test');
    const { pid = 0 } = helper.begin();
    const told = Promise.withResolvers<number[]>();
    const hear = (said: string): void => {
      if (said.startsWith('started ')) told.resolve(said.split(' ').slice(2).map(Number));
    };
    const order = helper.order('launch', catWords, hear);
    try {
      const ends = (await told.promise).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
      helper.expectMounts(1);
      const child = await until('one waits', () => childrenOf(pid).find(hasUserNamespace));
      await until('it holds what it needs', () => !openIn(child).some((link) => ends.includes(link)));
      assert.equal(ends.length, 3);
      assert.ok(hasUserNamespace(child));
    } finally {
      order.add('dropped');
      order.end();
      helper.close();
    }
  },
);

test('a launch that waits holds no pipe of another one', { skip: onlyRoot }, async () => {
  const helper = new Helper(PERL, 'test');
  const orders: HelperOrder[] = [];
  const launch = async (): Promise<{ order: HelperOrder; heard: string[] }> => {
    const heard: string[] = [];
    const order = helper.order('launch', catWords, (said) => heard.push(said));
    orders.push(order);
    await until('it has forked', () => heard.some((said) => said.startsWith('started ')));
    return { order, heard };
  };
  try {
    const first = await launch();
    await launch();
    // The helper closes its end of what cat reads, which ends when nobody else has it.
    first.order.add('taken', '');
    await until('it has ended', () => first.heard.includes('exit 0'));
  } finally {
    for (const order of orders) {
      order.add('dropped');
      order.end();
    }
    helper.close();
  }
});
