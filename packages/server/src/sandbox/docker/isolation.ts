import type { Isolation } from '../../domain/ports/sandbox.ts';

/** Run inside: prints what tells one kernel from another, and fails where a program could not work. */
export const KERNEL_SCRIPT =
  'set -e; : > /tmp/probe; : > /workspace/.probe; rm /workspace/.probe; echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null || true)"; echo "version $(cat /proc/version)"';

/** gVisor gives this for every kernel question, whatever its own version is. */
const GVISOR_VERSION = /^Linux version 4\.4\.0 .*Sun Jan 10 15:06:54 PST 2016$/;

/**
 * What a runtime really gives, told from inside a trial container: a name proves nothing, since any runtime can be
 * configured under any name. Unknown answers count as the weakest that fits.
 */
export function provenIsolation(said: string, hostBootId: string): Isolation {
  const boot = /^boot (.*)$/m.exec(said)?.[1]?.trim() ?? '';
  const version = /^version (.*)$/m.exec(said)?.[1]?.trim() ?? '';
  if (boot === hostBootId) return 'kernel';
  if (GVISOR_VERSION.test(version)) return 'user-kernel';
  return /^[0-9a-f-]{36}$/.test(boot) ? 'vm' : 'kernel';
}
