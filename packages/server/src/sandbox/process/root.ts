import { mkdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { SandboxSpec } from '../../domain/ports/sandbox.ts';

/**
 * A folder of links in the shape that a sandbox's root would have. A plain process sees the host's root, so the places
 * of the launch contract are found below this folder, which `BERTH_SANDBOX_ROOT` names.
 */
export function makeRoot(root: string, spec: SandboxSpec): void {
  const links: [path: string, hostPath: string][] = [
    ['/workspace', join(spec.volumeDir, 'workspace')],
    ['/home/agent', join(spec.volumeDir, 'home')],
    ['/run/berth', spec.runDir],
    ...spec.binds.map(({ path, hostPath }): [string, string] => [path, hostPath]),
  ];
  for (const [path, hostPath] of links) {
    const link = join(root, path);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(hostPath, link);
  }
}

/** Puts the root before each of the places where a text, or a part of it after a colon, begins with one. */
export function translate(text: string, root: string, binds: { path: string }[]): string {
  const places = ['/workspace', '/home/agent', '/run/berth', ...binds.map(({ path }) => path)];
  return text
    .split(':')
    .map((part) =>
      places.some((place) => part === place || part.startsWith(`${place}/`)) ? `${root}${part}` : part,
    )
    .join(':');
}
