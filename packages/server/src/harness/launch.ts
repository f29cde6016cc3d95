import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { HarnessLaunch, HarnessLaunchInput } from '../domain/ports/harness.ts';
import { reachableNodeDir } from './node-dir.ts';

/** The launch contract (docs/design/sandbox-launch.md), host side: what a sandbox is started with. */

export interface PreparedHarness {
  /** Host directory of the launcher as plain JavaScript, readable for every uid. */
  hostPath: string;
  /** Host directory that holds bin/node, reachable for every user that sandboxes run under. */
  nodeDir: string;
}

const stripper = fileURLToPath(new URL('./strip-types.mjs', import.meta.url));
const insideNode = '/opt/berth/node';
const insideHarness = '/opt/berth/harness';
const systemPath = `${insideNode}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

/**
 * Strips the types of the harness once for all starts, so that neither a sandbox nor a second start of the service pays
 * for it. The directory's name is a hash of all that decides its content: a running sandbox keeps the files that it was
 * started with when the service is updated.
 */
export async function prepareHarness(options: {
  sourceDir: string;
  targetDir: string;
  nodePath?: string;
}): Promise<PreparedHarness> {
  const names = (await readdir(options.sourceDir)).filter((name) => name.endsWith('.ts')).sort();
  const sources = await Promise.all(names.map((name) => readFile(join(options.sourceDir, name), 'utf8')));
  const terminals = await readTerminals();
  const hash = createHash('sha256')
    // What makes scripts of the sources: Node's own stripper, and this file.
    .update(JSON.stringify([process.version, await readFile(import.meta.filename, 'utf8'), names, sources]))
    .update(terminals ?? '')
    .digest('hex')
    .slice(0, 16);
  const hostPath = join(options.targetDir, `harness-${hash}`);
  await mkdir(options.targetDir, { recursive: true });
  const nodeDir = await reachableNodeDir(options.nodePath ?? process.execPath, options.targetDir);
  if (await exists(hostPath)) return { hostPath, nodeDir };
  const temporary = `${hostPath}.${process.pid}`;
  await mkdir(temporary, { recursive: true, mode: 0o755 });
  const stripped = await stripTypes(sources);
  for (const [index, name] of names.entries()) {
    const script = stripped[index]!.replace(/(from|import\()(\s*'\.\/[\w-]+)\.ts'/g, "$1$2.mjs'");
    await writeFile(join(temporary, name.replace(/\.ts$/, '.mjs')), script, { mode: 0o644 });
  }
  if (terminals) await writeFile(join(temporary, 'pty.node'), terminals, { mode: 0o644 });
  await rename(temporary, hostPath).catch(async (error: unknown) => {
    // Another process of the service was faster; its files are the same.
    await rm(temporary, { recursive: true, force: true });
    if (!(await exists(hostPath))) throw error;
  });
  return { hostPath, nodeDir };
}

/** node-pty's addon for this machine, which the launcher loads when the first terminal is wanted; null = there is none. */
async function readTerminals(): Promise<Buffer | null> {
  const name = `@lydell/node-pty-${process.platform}-${process.arch}/pty.node`;
  try {
    return await readFile(createRequire(import.meta.url).resolve(name));
  } catch {
    return null;
  }
}

async function stripTypes(sources: string[]): Promise<string[]> {
  // Without the notice that this is experimental, which would be the first line that a person sees of the service.
  const child = spawn(process.execPath, ['--no-warnings', stripper], { stdio: ['pipe', 'pipe', 'inherit'] });
  // A child that has ended reads no more; its exit code says what was wrong.
  child.stdin.on('error', () => undefined);
  child.stdin.end(JSON.stringify(sources));
  const [told, [code]] = await Promise.all([text(child.stdout), once(child, 'close')]);
  if (code !== 0)
    throw new Error(`The harness could not be prepared: its types were not stripped (${code}).`);
  return JSON.parse(told) as string[];
}

export function harnessLaunch(prepared: PreparedHarness, input: HarnessLaunchInput): HarnessLaunch {
  const withheld = new Set(input.withheldSecrets);
  const secrets = Object.entries(input.secrets).filter(([name]) => !withheld.has(name));
  return {
    command: [`${insideNode}/bin/node`, ...nodeFlags(input.memoryBytes), `${insideHarness}/launch.mjs`],
    env: {
      ...Object.fromEntries(secrets),
      PATH: systemPath,
      HOME: '/home/agent',
      USER: 'agent',
      LANG: 'C.UTF-8',
      BERTH_AGENT_ID: input.agentId,
      BERTH_COMMIT: input.commit,
      BERTH_MODEL: input.model,
      BERTH_MODEL_WIRE: input.wire,
      BERTH_MODEL_TOKEN: input.token,
      BERTH_MODEL_CONNECTIONS: String(input.modelConnections),
      ...(input.instructions === null ? {} : { BERTH_INSTRUCTIONS: input.instructions }),
      ...(input.command ? { BERTH_HARNESS_COMMAND: JSON.stringify(input.command) } : {}),
    },
    binds: bindsOf(prepared),
  };
}

/** What a sandbox runs that waits for its agent: with the data of `harnessLaunch` it becomes the same. */
export function harnessWait(prepared: PreparedHarness, memoryBytes: number): HarnessLaunch {
  return {
    command: [`${insideNode}/bin/node`, ...nodeFlags(memoryBytes), `${insideHarness}/wait.mjs`],
    env: { PATH: systemPath, HOME: '/home/agent', USER: 'agent', LANG: 'C.UTF-8' },
    binds: bindsOf(prepared),
  };
}

function bindsOf(prepared: PreparedHarness): HarnessLaunch['binds'] {
  return [
    { hostPath: prepared.nodeDir, path: insideNode },
    { hostPath: prepared.hostPath, path: insideHarness },
  ];
}

/**
 * Node does not see the sandbox's memory limit, and would be killed where it could have collected. The optimizing
 * compilers are off: the harness only passes text on, and without them it is 20 MB smaller and cheaper in its first
 * hundreds of turns (docs/decisions).
 */
function nodeFlags(memoryBytes: number): string[] {
  const oldSpaceMb = Math.max(32, Math.min(512, Math.floor(memoryBytes / 2 / 1024 / 1024)));
  return [`--max-old-space-size=${oldSpaceMb}`, '--max-semi-space-size=2', '--no-opt', '--no-maglev'];
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
