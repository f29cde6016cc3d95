import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { newId } from '../../src/domain/ids.ts';
import type { DeployPushed } from '../../src/domain/ports/repos.ts';
import { createGitEdge } from '../../src/edges/git.ts';
import { openRepos, type OpenRepos } from '../../src/repos/open-repos.ts';
import type { RepoLimits } from '../../src/repos/repo-limits.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { mintKey } from '../../src/services/api-keys.ts';
import type { Agent } from '../../src/domain/nouns.ts';
import { testDatabase } from './database.ts';
import { silentLog } from './log.ts';
import { memoryBells } from './memory-doorbell.ts';
import { createResources } from './resources.ts';

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A client's git with a home of its own, so that the machine's configuration plays no part. */
export function clientGit(home: string) {
  return async (
    args: string[],
    options: { cwd?: string; env?: Record<string, string> } = {},
  ): Promise<Ran> => {
    const child = spawn('git', args, {
      cwd: options.cwd ?? home,
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: home,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_TERMINAL_PROMPT: '0',
        GIT_AUTHOR_NAME: 'A',
        GIT_AUTHOR_EMAIL: 'a@example.com',
        GIT_COMMITTER_NAME: 'A',
        GIT_COMMITTER_EMAIL: 'a@example.com',
        LC_ALL: 'C',
        ...options.env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
    const [code] = (await once(child, 'close')) as [number | null];
    clearTimeout(timer);
    return { code, stdout, stderr };
  };
}

export type GitWorld = Awaited<ReturnType<typeof gitWorld>>;

/** Real repositories behind the real edge and services, on loopback, with a real git as the client. */
export async function gitWorld(options: { limits?: Partial<RepoLimits>; deploy?: DeployPushed } = {}) {
  const home = await mkdtemp(join(tmpdir(), 'berth-git-'));
  const root = join(home, 'repos');
  const guard = createUrlGuard([]);
  const opened: OpenRepos = await openRepos({
    root,
    log: silentLog,
    guard,
    ...(options.limits ? { limits: options.limits } : {}),
  });
  const { db, close: closeDatabase } = await testDatabase();
  const resources = createResources(db, memoryBells(), opened.repos);
  const orgId = newId();
  const foreignOrgId = newId();
  await resources.stores.orgs.insert({ id: orgId, name: 'Ours' });
  await resources.stores.orgs.insert({ id: foreignOrgId, name: 'Theirs' });

  const key = async (scope: 'use' | 'edit', agent: Agent | null = null, org = orgId): Promise<string> => {
    const minted = await mintKey(resources.stores.keys, {
      orgId: org,
      name: scope,
      scope,
      binding: agent ? 'agent-bound' : 'org-bound',
      agentId: agent?.id ?? null,
    });
    return minted.value;
  };
  const failures: string[] = [];
  const edge = createGitEdge({
    services: {
      auth: resources.auth,
      agents: resources.agents,
      rateLimit: {
        take: (_keyId, { quota, windowSeconds }) => ({
          allowed: true,
          quota,
          windowSeconds,
          remaining: quota - 1,
          resetSeconds: 1,
          retryAfterSeconds: 0,
        }),
        peek: () => assertNever(),
        authFailure: (address) => (failures.push(address) > 20 ? 7 : null),
      },
    },
    wire: opened.wire(options.deploy ?? resources.deployments.deployPushed),
    log: silentLog,
  });
  const server = createServer((request, response) => void edge.handle(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const git = clientGit(home);
  const editKey = await key('edit');
  const owner = {
    keyId: newId(),
    orgId,
    scope: 'edit' as const,
    binding: 'org-bound' as const,
    agentId: null,
  };

  return {
    ...resources,
    opened,
    root,
    home,
    git,
    port,
    key,
    orgId,
    owner,
    failures,
    foreign: { ...owner, orgId: foreignOrgId },
    /** A remote's URL with the key as password. */
    url: (agentId: string, password = editKey) =>
      `http://git:${password}@127.0.0.1:${port}/git/${agentId}.git`,
    bare: (agentId: string) => join(root, `${agentId}.git`),
    newAgent: () => resources.agents.create(owner, { name: 'Ours' }),
    /** A client's work tree with these files committed on `main`. */
    async workTree(files: Record<string, string>): Promise<string> {
      const folder = await mkdtemp(join(home, 'tree-'));
      await git(['init', '-q', '-b', 'main', folder]);
      await commitFiles(git, folder, files);
      return folder;
    },
    commit: (folder: string, files: Record<string, string>) => commitFiles(git, folder, files),
    async close() {
      server.closeAllConnections();
      server.close();
      await resources.work.idle();
      await opened.idle();
      await resources.auth.close();
      await closeDatabase();
      await rm(home, { recursive: true, force: true });
    },
  };
}

function assertNever(): never {
  throw new Error('The git edge never peeks.');
}

export async function commitFiles(
  git: ReturnType<typeof clientGit>,
  folder: string,
  files: Record<string, string>,
): Promise<string> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  await git(['add', '-A', '-f'], { cwd: folder });
  await git(['commit', '-q', '--allow-empty', '-m', 'change'], { cwd: folder });
  return (await git(['rev-parse', 'HEAD'], { cwd: folder })).stdout.trim();
}
