import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { constants } from 'node:os';

/**
 * Every git process of the service starts here, with an environment of its own: nothing of the machine's or the
 * user's configuration, no hooks, no helpers, no replaced objects, no prompt, and no protocol that the caller did not
 * ask for. A repository's content can therefore choose nothing about how git runs.
 */
export interface GitOptions {
  gitDir: string | null;
  /** Git configuration of this one call. It travels in the environment, never in the argument list or on disk. */
  config?: readonly (readonly [string, string])[];
  env?: Readonly<Record<string, string>>;
  /** The whole process group is killed after it. */
  timeoutMs: number;
  /** Caps set by the kernel for processes that work on what a stranger sent. */
  caps?: { memoryBytes: number; fileBytes?: number };
}

export interface GitResult {
  /** Null when it was killed. */
  code: number | null;
  stdout: Buffer;
  stderr: string;
  timedOut: boolean;
}

const baseConfig: readonly (readonly [string, string])[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.attributesFile', '/dev/null'],
  ['core.alternateRefsCommand', 'true'],
  ['core.askPass', ''],
  ['credential.helper', ''],
  // Blobs above it are streamed instead of being held in memory.
  ['core.bigFileThreshold', '16m'],
  ['core.packedGitLimit', '256m'],
  ['pack.threads', '1'],
  ['pack.windowMemory', '128m'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  // The service is the only user of these directories, whatever uid a restored backup gave them.
  ['safe.directory', '*'],
  ['submodule.recurse', 'false'],
  ['fetch.recurseSubmodules', 'false'],
  ['advice.detachedHead', 'false'],
];

export function gitEnvironment(
  options: Pick<GitOptions, 'gitDir' | 'config' | 'env'>,
): Record<string, string> {
  const config = [...baseConfig, ...(options.config ?? [])];
  const env: Record<string, string> = {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: '/nonexistent',
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_ATTR_NOSYSTEM: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: 'none',
    GIT_OPTIONAL_LOCKS: '0',
    GIT_CONFIG_COUNT: String(config.length),
    ...options.env,
  };
  config.forEach(([key, value], index) => {
    env[`GIT_CONFIG_KEY_${index}`] = key;
    env[`GIT_CONFIG_VALUE_${index}`] = value;
  });
  if (options.gitDir !== null) env['GIT_DIR'] = options.gitDir;
  return env;
}

/** Starts git as the leader of a process group of its own, so that `killGit` also reaches its children. */
export function spawnGit(args: readonly string[], options: GitOptions): ChildProcessWithoutNullStreams {
  const env = gitEnvironment(options);
  const settings = { env, cwd: '/', detached: true, stdio: 'pipe' as const };
  const child = options.caps
    ? spawn('/usr/bin/timeout', wrap(args, options.timeoutMs, options.caps), settings)
    : spawn('git', args, settings);
  // Without descriptors Node gives a process without streams, and an event that would end the service if nobody listened.
  child.on('error', () => undefined);
  if ((child.stdin as unknown) === undefined) {
    throw new Error('git could not be started: the machine has no file descriptors left.');
  }
  const timer = setTimeout(() => {
    overdue.add(child);
    endGit(child);
  }, options.timeoutMs);
  child.once('close', () => {
    closed.add(child);
    clearTimeout(timer);
  });
  child.once('error', () => clearTimeout(timer));
  // A child that died closes its end; writing to it then must not throw in our process.
  child.stdin.on('error', () => undefined);
  return child;
}

/**
 * The kernel's limits through the shell's `ulimit`; the words of the git call are arguments, not script text.
 * `timeout` ends the group even when the service itself is gone and nobody is left to do it.
 */
function wrap(args: readonly string[], timeoutMs: number, caps: NonNullable<GitOptions['caps']>): string[] {
  const limits = [`ulimit -v ${Math.ceil(caps.memoryBytes / 1024)}`, 'ulimit -c 0'];
  if (caps.fileBytes !== undefined) limits.push(`ulimit -f ${Math.ceil(caps.fileBytes / 512)}`);
  const seconds = Math.ceil(timeoutMs / 1000) + 5;
  const script = `${limits.join(' && ')} && exec git "$@"`;
  return ['--signal=TERM', '--kill-after=5', String(seconds), '/bin/sh', '-c', script, 'git', ...args];
}

/**
 * Resolves when it has ended and its output is read, with its exit code; null = it was killed, or could not be started.
 * Never rejects, so it may be asked for long before it is waited for.
 */
export function endOfGit(child: ChildProcessWithoutNullStreams): Promise<number | null> {
  return new Promise((resolve) => {
    child.once('close', (code) => resolve(code));
    child.once('error', () => resolve(null));
  });
}

const closed = new WeakSet<object>();
/** Those that were ended since their time was over. */
const overdue = new WeakSet<object>();

/**
 * Signals the process group: at once, and also when only its leader has ended. Harmless once everything is closed,
 * after which the number may belong to somebody else.
 */
export function killGit(
  child: { pid?: number | undefined },
  signal: 'SIGTERM' | 'SIGKILL' = 'SIGKILL',
): void {
  if (child.pid === undefined || closed.has(child)) return;
  try {
    process.kill(-child.pid, constants.signals[signal]);
  } catch {
    // It has ended in the meantime.
  }
}

/** Lets git remove its locks and half-written packs, but not for long. */
export function endGit(child: { pid?: number | undefined }): void {
  killGit(child, 'SIGTERM');
  setTimeout(() => killGit(child), 2_000).unref();
}

/** Runs git to its end. Rejects only when it cannot be started; a failure is in the result. */
export function runGit(
  args: readonly string[],
  options: GitOptions & { input?: string | Buffer; maxOutputBytes?: number },
): Promise<GitResult> {
  return new Promise((resolve, reject) => {
    const child = spawnGit(args, options);
    const maxBytes = options.maxOutputBytes ?? 4 * 1024 * 1024;
    const chunks: Buffer[] = [];
    let bytes = 0;
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > maxBytes) return killGit(child);
      chunks.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      if (stderr.length < 64 * 1024) stderr += chunk.toString('utf8');
    });
    child.once('error', reject);
    child.once('close', (code) => {
      const timedOut = code !== 0 && overdue.has(child);
      resolve({ code, stdout: Buffer.concat(chunks), stderr, timedOut });
    });
    child.stdin.end(options.input ?? '');
  });
}
