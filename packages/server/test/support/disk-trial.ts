import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tryImage } from '../../src/sandbox/disk/image-probe.ts';
import { silentLog } from './log.ts';

/** Why agents cannot have disks of their own here; null when they can. */
export async function noDisks(): Promise<string | null> {
  const folder = mkdtempSync(join(tmpdir(), 'berth-trial-'));
  const { problem } = await tryImage(folder, silentLog);
  rmSync(folder, { recursive: true });
  return problem;
}
