import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Attachment } from '../../src/domain/ports/channel.ts';
import { tarEnd, tarHeader, tarPadding, type TarEntry } from '../../src/domain/tar.ts';
import { createAttachments, type Attachments } from '../../src/services/attachments.ts';
import { createGuardedCaller } from '../../src/services/guarded-call.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { fixture, type Fixture } from '../sandbox/fixture.ts';
import { edgeWorld, readReply, type EdgeWorld, type Reply } from '../support/edge-world.ts';
import { gitWorld, type GitWorld } from '../support/git-world.ts';
import { silentLog } from '../support/log.ts';
import { inTime } from '../support/until.ts';

// An agent's volume, a sandbox on it, and all of the service that looks at files of agents. There is one for a test file.

const SECRET = 'only-the-host-may-read-this-7b21';
export let fx: Fixture;
export let edge: EdgeWorld;
let origin = '';
export let git: GitWorld;
export let attachments: Attachments;
export let volumeDir = '';
export let workspace = '';
/** Holds `secret`, which only the service may read. */
export let hostDir = '';
/** What the programs in a hostile repository make, if anybody on the host runs them. */
export let marker = '';

/** Opens all of it; null, or why there is no sandbox here. */
export async function openWorld(): Promise<string | null> {
  fx = fixture();
  const { usable, problems } = await fx.driver.capabilities();
  [edge, git] = await Promise.all([
    edgeWorld(),
    gitWorld({ limits: { archiveEntries: 50, archiveBytes: 1024 * 1024 } }),
  ]);
  origin = await edge.listen();
  // The sandbox's user must be able to pass through.
  chmodSync(edge.volumesDir, 0o711);
  volumeDir = join(edge.volumesDir, edge.agent.id);
  workspace = join(volumeDir, 'workspace');
  hostDir = join(fx.folder, 'host');
  marker = join(fx.folder, 'marker');
  mkdirSync(hostDir, { mode: 0o755 });
  writeFileSync(join(hostDir, 'secret'), SECRET, { mode: 0o600 });
  const caller = createGuardedCaller(createUrlGuard([]));
  attachments = createAttachments({ caller, files: edge.services.sandboxFiles, log: silentLog });
  return usable ? null : `no sandbox here: ${problems.join(' ')}`;
}

export async function closeWorld(): Promise<void> {
  await fx?.close();
  await edge?.close();
  await git?.close();
}

/** As the agent, in a sandbox on its volume. */
export async function agent(script: string): Promise<string> {
  const { exit, stdout, stderr } = await fx.run(script, { volumeDir });
  assert.equal(exit.code, 0, stderr);
  return stdout;
}

export const of = (path: string): string => `/sandbox/${edge.agent.id}${path}`;
/** Over the wire, as everybody gets files. */
export async function fetched(href: string, init: RequestInit = {}): Promise<Reply> {
  const headers = { authorization: `Bearer ${edge.keys.owner}`, ...init.headers };
  return readReply(await fetch(`${origin}${href}`, { ...init, headers }));
}
export const ask = (method: string, path: string, body?: Uint8Array, type = 'application/octet-stream') => {
  const sent = body
    ? { body: body as NonNullable<RequestInit['body']>, headers: { 'content-type': type } }
    : {};
  return inTime(`${method} ${path} is answered`, fetched(of(`/files${path}`), { method, ...sent }));
};
export const snapshot = async (): Promise<string> => {
  const made = await inTime('a snapshot is made', edge.call('POST', of('/snapshots'), { body: {} }));
  assert.equal(made.status, 201, made.text);
  return (made.json as { snapshot: { id: string } }).snapshot.id;
};
export const restore = async (id: string): Promise<void> => {
  const done = await inTime(
    'it is restored',
    edge.call('POST', of(`/snapshots/${id}/restore`), { body: {} }),
  );
  assert.equal(done.status, 200, done.text);
};
export const save = (key: string, name: string, bytes: Buffer = Buffer.from('sent')): Promise<string[]> => {
  const to = { channelId: 'c', orgId: edge.agent.orgId, agentId: edge.agent.id };
  const content = { at: 'inline' as const, bytes };
  const file: Attachment = { name, mediaType: 'text/plain', sizeBytes: bytes.length, content };
  return inTime('the attachment is saved', attachments.save(to, key, [file]));
};
export const placeOf = (line: string | undefined): string =>
  /^- \/workspace\/(attachments\/[0-9a-f]{16}\/[^\n]+) \(/.exec(line ?? '')?.[1] ?? '';

/** Nothing of the host was read, and nothing there was changed. */
export function assertHostIsWhole(...said: (string | Buffer)[]): void {
  for (const text of said) assert.ok(!text.includes(SECRET), 'a file of the host was told');
  assert.deepEqual(readdirSync(hostDir), ['secret']);
  assert.equal(readFileSync(join(hostDir, 'secret'), 'utf8'), SECRET);
}

/** Pushes what is in a work tree; answers what the terminal saw and what became of its deployment, and its archive's listing. */
export async function deploy(tree: string) {
  const made = await git.newAgent();
  const pushed = await git.git(['push', '-q', '-f', git.url(made.id), 'main'], { cwd: tree });
  await git.work.idle();
  const { items } = await git.deployments.list(git.owner, made.id, { limit: 10, cursor: null });
  const commit = (await git.git(['rev-parse', 'main'], { cwd: tree })).stdout.trim();
  const isThere = (await git.opened.repos.resolve(made.id, 'main')) === commit;
  const target = join(git.home, `${made.id}.tar`);
  let archive: Buffer | null = null;
  /** Why no sandbox could be started with it. */
  let refusal: string | null = null;
  if (isThere) {
    await git.opened.repos.writeArchive(made.id, commit, target).then(
      () => (archive = readFileSync(target)),
      (error: Error) => (refusal = error.message),
    );
  }
  const listed = archive === null ? '' : spawnSync('tar', ['-tvf', target]).stdout.toString();
  return {
    pushed,
    items,
    commit,
    agentId: made.id,
    archive: archive as Buffer | null,
    refusal: refusal as string | null,
    listed,
    isThere,
  };
}

/** In a client's work tree: objects as git would not make them. */
export function raw(tree: string, args: string[], input: string | Buffer = ''): string {
  const who = {
    GIT_AUTHOR_NAME: 'A',
    GIT_AUTHOR_EMAIL: 'a@e.c',
    GIT_COMMITTER_NAME: 'A',
    GIT_COMMITTER_EMAIL: 'a@e.c',
  };
  const env = { PATH: process.env['PATH'], HOME: git.home, ...who };
  return execFileSync('git', args, { cwd: tree, input, env, stdio: ['pipe', 'pipe', 'pipe'] })
    .toString()
    .trim();
}

let forge = '';
/** A work tree whose `main` has these entries, whatever they are called; `folder` is a tree, `blob` a path of the host. */
export async function forged(
  entries: (ids: { blob: string; folder: string }) => [mode: string, name: string, id: string][],
): Promise<string> {
  forge ||= await git.workTree({ 'AGENTS.md': 'x\n' });
  const blob = raw(forge, ['hash-object', '-w', '--stdin'], hostDir);
  const folder = raw(forge, ['mktree'], `100644 blob ${blob}\tevil\n`);
  const bytes = entries({ blob, folder }).map(([mode, name, id]) =>
    Buffer.concat([Buffer.from(`${mode} ${name}\0`), Buffer.from(id, 'hex')]),
  );
  const id = raw(forge, ['hash-object', '-t', 'tree', '-w', '--literally', '--stdin'], Buffer.concat(bytes));
  raw(forge, ['update-ref', 'refs/heads/main', raw(forge, ['commit-tree', '-m', 'forged', id])]);
  return forge;
}

interface Made extends Partial<Omit<TarEntry, 'path' | 'target'>> {
  path: string;
  target?: string;
  content?: string;
}

export function tarOf(...entries: Made[]): Buffer {
  const parts = entries.flatMap(({ path, target = '', content = '', ...rest }) => {
    const bytes = Buffer.from(content);
    const head = { kind: 'file' as const, mode: 0o644, mtimeSeconds: 1_700_000_000, sizeBytes: bytes.length };
    const names = { path: Buffer.from(path), target: Buffer.from(target) };
    return [tarHeader({ ...head, ...rest, ...names }), bytes, tarPadding(bytes.length)];
  });
  return Buffer.concat([...parts, tarEnd]);
}
