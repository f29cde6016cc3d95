/**
 * Restores a volume, or clears up after that, and is killed at a step: `restore-child.ts restore|clear VOLUME STEP`.
 * A process of its own, since nothing may run in it after that step.
 */
import { execFileSync } from 'node:child_process';
import { volumeSwap } from '../../src/sandbox/volume-swap.ts';
import { clearVolume, restoreVolume } from '../../src/volumes/restore.ts';
import { chunks } from './world.ts';

const [what, volumeDir, fatalStep] = process.argv.slice(2) as [string, string, string];
const onStep = (step: string): void => {
  if (step === fatalStep) process.kill(process.pid, 'SIGKILL');
};

if (what === 'restore') {
  const archive = execFileSync('tar', ['-C', `${volumeDir}/../new`, '-cf', '-', 'workspace', 'home']);
  const limits = { maxBytes: 1e9, maxEntries: 1000 };
  await restoreVolume({ volumeDir, archive: chunks(archive), limits, swap: volumeSwap, onStep });
} else {
  const swap = { ...volumeSwap, finish: (dir: string) => volumeSwap.finish(dir, onStep) };
  await clearVolume(volumeDir, swap);
}
