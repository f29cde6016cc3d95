// Brings a fresh clone to where the service and the tests can run. Plain JavaScript for any Node from 20 on, without
// a dependency, since nothing is installed yet when it begins. Does nothing (in a few milliseconds) when all is there.
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { applyPatches } from './patches.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const forTests = process.argv.includes('--test');
const forBench = process.argv.includes('--bench');

function fail(line) {
  process.stderr.write(`berth: ${line}\n`);
  process.exit(1);
}

function onPath(program) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Runs a program to its end; its output goes to standard error, or is given back where it `isQuiet`. */
function run(command, args, { isQuiet = false, ...options } = {}) {
  return new Promise((resolve) => {
    const stdio = isQuiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 2, 2];
    const child = spawn(command, args, { ...options, stdio });
    const said = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => said.push(chunk));
    child.once('error', (error) => resolve({ isGood: false, output: `${error.message}\n` }));
    child.once('close', (code) => resolve({ isGood: code === 0, output: Buffer.concat(said).toString() }));
  });
}

/** Resolves with what went wrong, null when nothing did. */
async function npmPackages() {
  const lock = readFileSync(join(root, 'package-lock.json'));
  const stamp = createHash('sha256').update(lock).update(`${process.platform}-${process.arch}`).digest('hex');
  const stampFile = join(root, 'node_modules', '.berth-lock');
  if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) return null;
  process.stderr.write('berth: installing npm packages\n');
  // npm is run by the file it named itself with, so that the same npm is used even when none is on PATH.
  const npm = process.env.npm_execpath;
  const [command, args] = npm && /\.c?js$/.test(npm) ? [process.execPath, [npm]] : ['npm', []];
  // A registry that is slow or away for a moment must not fail the whole run.
  const ci = ['ci', '--no-audit', '--no-fund', '--loglevel=error', '--fetch-retries=5'];
  const { isGood } = await run(command, [...args, ...ci], { cwd: root });
  if (!isGood) return 'npm ci failed; its own lines above say why.';
  writeFileSync(stampFile, stamp);
  return null;
}

async function patchPackages() {
  try {
    if (applyPatches(root).length === 0) return;
    // Patched by another version of Berth, or edited by hand.
    rmSync(join(root, 'node_modules', '.berth-lock'), { force: true });
    const problem = await npmPackages();
    if (problem !== null) fail(problem);
    const stale = applyPatches(root);
    if (stale.length > 0)
      fail(`the patch for ${stale.join(', ')} in patches/ does not fit the package that npm installed.`);
  } catch (error) {
    fail(`the npm packages could not be patched: ${error.message}.`);
  }
}

function hasSystemPostgres() {
  if (onPath('postgres')) return true;
  try {
    return readdirSync('/usr/lib/postgresql').some((major) =>
      existsSync(`/usr/lib/postgresql/${major}/bin/postgres`),
    );
  } catch {
    return false;
  }
}

/** apt-get on a machine where something else may use it too. */
async function apt(args) {
  // A mirror may be away for a moment, and a machine that has just started installs updates by itself.
  const patience = ['-o', 'Acquire::Retries=3', '-o', 'DPkg::Lock::Timeout=300'];
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  return run('apt-get', [...patience, ...args], { env, isQuiet: true });
}

async function aptInstall(packages, { isTold = true } = {}) {
  process.stderr.write(`berth: installing system packages: ${packages.join(' ')}\n`);
  const { isGood, output } = await apt(['install', '-y', '-qq', '--no-install-recommends', ...packages]);
  // Its hundred lines matter only when it fails.
  if (!isGood && isTold) process.stderr.write(output);
  return isGood;
}

/** What a person without root rights is to type, in one line. */
function remedy(packages) {
  if (!onPath('apt-get')) return `install with the package manager of this system: ${packages.join(' ')}`;
  if (!onPath('sudo')) return `run as root: apt-get update && apt-get install -y ${packages.join(' ')}`;
  return `run: sudo apt-get update && sudo apt-get install -y ${packages.join(' ')}`;
}

/** Programs that only tests run, most of them inside of sandboxes, and the packages that bring them. */
const testPrograms = [
  ['openssl', 'openssl'],
  ['curl', 'curl'],
  ['python3', 'python3'],
  ['pip3', 'python3-pip'],
  ['ip', 'iproute2'],
];

/** Engines that the tests of containers start by themselves. Systems that lack some of them skip those tests. */
const engines = [
  ['podman', 'podman'],
  ['conmon', 'conmon'],
  ['catatonit', 'catatonit'],
  ['dockerd', 'docker.io'],
  ['runc', 'runc'],
  ['runsc', 'runsc'],
  ['nsenter', 'util-linux'],
  ['mkfs.ext4', 'e2fsprogs'],
];

/** What another runtime needs that the bench compares with. */
const benchPrograms = [
  ['socat', 'socat'],
  ['rg', 'ripgrep'],
];

const missingOf = (programs) => programs.flatMap(([program, name]) => (onPath(program) ? [] : [name]));

/** What apt is to install. Ends the program where a person has to do that. */
function missingPackages() {
  if (process.platform !== 'linux') return { needed: [], optional: [] };
  const needed = missingOf([
    ['bwrap', 'bubblewrap'],
    ['git', 'git'],
  ]);
  const wanted = [
    ...(forTests && !hasSystemPostgres() ? ['postgresql'] : []),
    ...(forTests ? missingOf(testPrograms) : []),
  ];
  const compared = forBench ? missingOf(benchPrograms) : [];
  if (process.getuid() === 0 && onPath('apt-get')) {
    const optional = [...(forTests ? missingOf(engines) : []), ...compared];
    return { needed: [...needed, ...wanted], optional };
  }
  if (needed.length > 0) fail(`missing system packages; ${remedy([...needed, ...wanted])}`);
  // Tests that need these skip, and say so.
  if (wanted.length > 0)
    process.stderr.write(`berth: some tests will be skipped; to have all of them, ${remedy(wanted)}\n`);
  if (compared.length > 0)
    process.stderr.write(`berth: sandbox-runtime will not be measured; to have it, ${remedy(compared)}\n`);
  return { needed: [], optional: [] };
}

const without = (name) =>
  benchPrograms.some((program) => program[1] === name)
    ? 'sandbox-runtime is not measured'
    : 'some tests will be skipped';

/** Resolves with what went wrong, null when nothing did. */
async function systemPackages({ needed, optional }) {
  if (needed.length + optional.length === 0) return null;
  if (needed.includes('postgresql') && !existsSync('/etc/postgresql-common/createcluster.conf')) {
    // Only the programs are wanted: the tests start servers of their own, so no cluster is made and none is started.
    mkdirSync('/etc/postgresql-common', { recursive: true });
    writeFileSync('/etc/postgresql-common/createcluster.conf', 'create_main_cluster = false\n');
  }
  // The package list of a fresh machine is empty or old; where it cannot be fetched, an old one may still do.
  const update = await apt(['update', '-qq']);
  if (!update.isGood) process.stderr.write(update.output);
  if (needed.length > 0 && !(await aptInstall(needed)))
    return `apt-get install ${needed.join(' ')} failed; its own lines above say why.`;
  // One installation is quicker than one for each, but fails as a whole where the system lacks one of them.
  if (optional.length === 0 || (optional.length > 1 && (await aptInstall(optional, { isTold: false }))))
    return null;
  for (const name of optional)
    if (!(await aptInstall([name]))) process.stderr.write(`berth: without ${name} ${without(name)}\n`);
  return null;
}

function checkNode() {
  const bundled = join(root, 'node_modules', '.bin', 'node');
  const name = `node-${process.platform}-${process.arch}`;
  // npm 10 leaves this link out when it was told to run no scripts.
  if (!existsSync(bundled) && existsSync(join(root, 'node_modules', name, 'bin', 'node')))
    symlinkSync(join('..', name, 'bin', 'node'), bundled);
  const node = existsSync(bundled) ? bundled : process.execPath;
  const version = execFileSync(node, ['--version'], { encoding: 'utf8' }).trim();
  if (Number(version.slice(1).split('.')[0]) < 24) {
    fail(
      `Node 24 or newer is needed and no build of it came with the packages for ${process.platform}-${process.arch}; this is ${version}.`,
    );
  }
}

if (Number(process.versions.node.split('.')[0]) < 20)
  fail(`Node 20 or newer is needed; this is ${process.version}.`);
// What a person has to install is said before the long download. The two do not wait for each other: one mostly unpacks
// while the other waits for a mirror.
const missing = missingPackages();
const problems = await Promise.all([systemPackages(missing), npmPackages()]);
const problem = problems.find((one) => one !== null);
if (problem) fail(problem);
await patchPackages();
checkNode();
