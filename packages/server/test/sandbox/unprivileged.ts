import { spawn } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const UNPRIVILEGED = 61_234;
const server = join(import.meta.dirname, '../..');

/** Runs files of this folder with Node as a user without rights, from a copy that this user can read. */
export async function runUnprivileged(
  files: string[],
  flags: string[],
): Promise<{ code: number | null; stdout: string; output: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-unpriv-'));
  try {
    chmodSync(folder, 0o755);
    chownSync(folder, UNPRIVILEGED, UNPRIVILEGED);
    for (const part of ['src/domain', 'src/harness', 'src/sandbox', 'test/sandbox', 'test/support'])
      cpSync(join(server, part), join(folder, part), { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    copyFileSync(process.execPath, join(folder, 'node'));
    chmodSync(join(folder, 'node'), 0o755);
    const child = spawn(
      join(folder, 'node'),
      [...flags, ...files.map((file) => join(folder, 'test/sandbox', file))],
      {
        uid: UNPRIVILEGED,
        gid: UNPRIVILEGED,
        cwd: folder,
        env: { TMPDIR: folder, PATH: '/usr/bin:/bin' },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, stdout, output: `${stdout}${stderr}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
