import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import type { Controller } from './cgroup/hierarchy.ts';

/** What a host lacks, and what to do about it, as lines for a person. */
export function missingPrograms(programs: { path: string; debianPackage: string }[]): string[] {
  return programs.flatMap(({ path, debianPackage }) => {
    if (isExecutable(path)) return [];
    return [
      `${path} is missing. On Debian and Ubuntu: apt-get install -y ${debianPackage} (elsewhere the package has the same name).`,
    ];
  });
}

/** The likely cause of a failed start, from what the kernel says of itself; `said` are the words of the attempt. */
export function explainFailure(said: string): string[] {
  const lines = [`A trial sandbox did not start: ${said.trim().slice(0, 500)}`];
  if (read('/proc/sys/kernel/unprivileged_userns_clone') === '0') {
    lines.push(
      'User namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d).',
    );
  }
  if (read('/proc/sys/user/max_user_namespaces') === '0') {
    lines.push(
      'User namespaces are limited to none: sysctl -w user.max_user_namespaces=15000 (and in /etc/sysctl.d).',
    );
  }
  if (read('/proc/sys/kernel/apparmor_restrict_unprivileged_userns') === '1') {
    lines.push(
      'AppArmor keeps programs from making user namespaces (Ubuntu 23.10 and newer): give bwrap a profile with the rule ' +
        '"userns,", or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (and in /etc/sysctl.d).',
    );
  }
  if (inContainer()) {
    lines.push(
      'This is a container, whose own confinement forbids sandboxes inside: start it with ' +
        '--security-opt seccomp=unconfined --security-opt systempaths=unconfined (no added capability is needed).',
    );
  }
  return lines;
}

/** Says what is not enforced, and how it could be. Empty where every limit is. */
export function cgroupNotes(enforced: readonly Controller[], isRoot: boolean): string[] {
  const missing = (['memory', 'cpu', 'pids'] as const).filter((name) => !enforced.includes(name));
  if (missing.length === 0) return [];
  const remedy = isRoot
    ? 'mount the cgroup file system writable (in a container: --privileged, or --cgroupns=private with a writable /sys/fs/cgroup)'
    : 'run the service as root, or under systemd with Delegate=yes, so that it owns a cgroup subtree';
  const lines = [`The cgroup limits of ${missing.join(', ')} cannot be set here. To get them, ${remedy}.`];
  if (missing.includes('memory')) {
    lines.push(
      'Until then each process may take the memory limit and 640 MiB more (Node sets that much address space aside), ' +
        'and a sandbox as much as its processes together.',
    );
  }
  return lines;
}

function inContainer(): boolean {
  return existsSync('/.dockerenv') || existsSync('/run/.containerenv');
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return null;
  }
}
