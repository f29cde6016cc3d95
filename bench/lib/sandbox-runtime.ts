import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { echoProgram, runningChild } from './starters.ts';
import type { Starter } from './starters.ts';

/** What of its interface is used here. */
interface SandboxManager {
  initialize(config: object): Promise<void>;
  wrapWithSandbox(command: string): Promise<string>;
  reset(): Promise<void>;
}

const PACKAGE = '@anthropic-ai/sandbox-runtime';
const VERSION = '0.0.83';
const INSTALL_MS = 60_000;
/** Without these it refuses to start. */
const PROGRAMS = ['bwrap', 'socat', 'rg'];

export interface RuntimeStarter extends Starter {
  /** A shell command that runs `command` in the sandbox. */
  wrap(command: string): Promise<string>;
}

/**
 * Anthropic's sandbox-runtime (Apache-2.0), to compare with. It is installed for the run into a folder that is removed
 * after it: Berth does not need it, so whoever installs Berth does not get it. A text says why it cannot run here.
 */
export async function runtimeStarter(): Promise<RuntimeStarter | string> {
  const missing = PROGRAMS.filter((program) => !isOnPath(program));
  if (missing.length > 0) return `not run: ${missing.join(', ')} missing (apt: bubblewrap, socat, ripgrep)`;
  const folder = mkdtempSync(join(tmpdir(), 'berth-bench-runtime-'));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  try {
    const manager = await install(folder);
    const writable = join(folder, 'workspace');
    mkdirSync(writable);
    await manager.initialize({
      network: { allowedDomains: [], deniedDomains: [] },
      filesystem: { denyRead: [], allowWrite: [writable], denyWrite: [] },
    });
    return starterOf(manager, remove);
  } catch (error) {
    remove();
    return `not run: ${String(error).split('\n')[0]?.slice(0, 120)}`;
  }
}

function starterOf(manager: SandboxManager, remove: () => void): RuntimeStarter {
  const wrap = (command: string) => manager.wrapWithSandbox(command);
  return {
    name: 'sandbox-runtime',
    wrap,
    async start() {
      const command = await wrap(`exec ${process.execPath} -e "${echoProgram}"`);
      const child = spawn('/bin/sh', ['-c', `exec ${command}`], { stdio: ['pipe', 'pipe', 'inherit'] });
      const running = runningChild(child);
      await once(child.stdout, 'data');
      return running;
    },
    async end() {
      await manager.reset();
      remove();
    },
  };
}

async function install(folder: string): Promise<SandboxManager> {
  const args = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund', '--no-save'];
  const npm = process.env['npm_execpath'];
  const [command, first] = npm?.endsWith('js') ? [process.execPath, [npm]] : ['npm', []];
  await promisify(execFile)(command, [...first, ...args, `${PACKAGE}@${VERSION}`], {
    cwd: folder,
    timeout: INSTALL_MS,
  });
  const resolved = createRequire(join(folder, 'index.js')).resolve(PACKAGE);
  const module = (await import(pathToFileURL(resolved).href)) as { SandboxManager: SandboxManager };
  return module.SandboxManager;
}

function isOnPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
