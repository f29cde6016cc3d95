// Repairs of npm packages that are kept here as patches/<package>-<version>.patch (docs/decisions/0050).
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Says which patch a package has. It lies in the package's folder, so that it goes with it when npm installs anew. */
const STAMP = '.berth-patch';

/**
 * Applies what is not applied yet; a few file reads when all is. Returns the packages whose files are neither as
 * released nor as patched (an older patch, say): they must be installed anew first. Throws when git is missing or fails.
 */
export function applyPatches(root) {
  const stale = [];
  for (const file of readdirSync(join(root, 'patches')).sort()) {
    const [, name, version] = /^(.+)-(\d+\.\d+\.\d+)\.patch$/.exec(file) ?? [];
    if (!name) throw new Error(`patches/${file} must be named <package>-<version>.patch`);
    const folder = join(root, 'node_modules', name);
    const patch = join(root, 'patches', file);
    const stamp = createHash('sha256').update(readFileSync(patch)).digest('hex');
    const stampFile = join(folder, STAMP);
    if (existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) continue;
    const installed = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version;
    if (installed !== version) throw new Error(`patches/${file} is for ${name} ${version}, not ${installed}`);
    // Done by a run that ended before it wrote the stamp.
    const isPatched = gitApply(folder, ['--reverse', '--check', patch]);
    if (!isPatched && !gitApply(folder, [patch])) {
      stale.push(name);
      continue;
    }
    // A file of its own: the folder may be a copy by hard links.
    rmSync(stampFile, { force: true });
    writeFileSync(stampFile, stamp);
  }
  return stale;
}

/** Whether git could do so. It changes all files or none, each by a new file, so hard links to the old ones stay as they were. */
function gitApply(folder, args) {
  const env = { ...process.env };
  for (const name of ['GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_PREFIX']) delete env[name];
  // Inside a checkout git would take the paths of a patch from the checkout's root and skip what is not below the folder.
  env.GIT_CEILING_DIRECTORIES = dirname(realpathSync(folder));
  const result = spawnSync('git', ['apply', '--whitespace=nowarn', ...args], { cwd: folder, env });
  if (result.error) throw new Error(`git could not be run: ${result.error.message}`);
  return result.status === 0;
}
