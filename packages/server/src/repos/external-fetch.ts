import { readdir, rm, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { Log } from '../domain/log.ts';
import { RepoError, type FetchRequest } from '../domain/ports/repos.ts';
import { UrlRefused, type CheckedUrl, type UrlGuard } from '../domain/url-guard.ts';
import { writeCaBundle } from './ca-bundle.ts';
import { explainFetchFailure } from './fetch-errors.ts';
import { GateFull, KeyGate } from '../domain/key-gate.ts';
import { runGit, type GitResult } from './git-process.ts';
import type { Maintenance } from './maintenance.ts';
import { isCommitId, isRefName, shortName } from './ref-names.ts';
import { chooseRef, parseRemoteRefs } from './remote-refs.ts';
import type { RepoLimits } from './repo-limits.ts';
import { keptRefs, type RepoStore } from './repo-store.ts';
import { formatMiB } from './wire-body.ts';
import { objectChecks } from './wire-config.ts';
import { repoSize } from './wire.ts';

export interface FetcherOptions {
  store: RepoStore;
  limits: RepoLimits;
  log: Log;
  guard: UrlGuard;
  extraCaFiles: readonly string[];
  maintenance: Maintenance;
}

/** One remote, checked: everything that git needs to speak to it and to nothing else. */
interface Remote {
  url: string;
  config: readonly (readonly [string, string])[];
  token: string | null;
}

const fetchedRef = 'refs/berth/fetched';

/** Fetches external https repositories into the agents' bare ones. */
export class ExternalFetcher {
  readonly #options: FetcherOptions;
  readonly #gate = new KeyGate({
    ...{ total: 4, perKey: 1, perGroup: 3 },
    ...{ maxWaiting: 256, waitingPerKey: 64, waitingPerGroup: 192 },
  });
  #caFile: Promise<string> | null = null;

  constructor(options: FetcherOptions) {
    this.#options = options;
  }

  /** Throws RepoError. The same call again repairs what an interrupted one left, and costs little when nothing is new. */
  async fetch(agentId: string, request: FetchRequest): Promise<{ commit: string; ref: string }> {
    const { store, limits, maintenance } = this.#options;
    if (request.ref !== null && !isRefName(shortName(request.ref))) {
      throw new RepoError('ref: must be the name of a branch or tag, or a full commit id.');
    }
    const leave = await this.#gate.enter(agentId, undefined, request.orgId).catch((error: unknown) => {
      throw error instanceof GateFull ? new RepoError('Too many fetches at once; try again.') : error;
    });
    try {
      await store.make(agentId, () => Promise.resolve());
      await store.removeStaleLocks(agentId);
      if ((await repoSize(store.dir(agentId))) > limits.repoBytes) {
        throw new RepoError(`The fetched history is larger than ${formatMiB(limits.repoBytes)}.`);
      }
      const remote = await this.#remote(request);
      const wanted = request.ref === null ? null : shortName(request.ref);
      return wanted !== null && isCommitId(wanted)
        ? await this.#fetchCommit(agentId, remote, wanted)
        : await this.#fetchRef(agentId, remote, request.ref);
    } finally {
      leave();
      maintenance.pushed(agentId);
    }
  }

  /** A branch or tag, without its history. */
  async #fetchRef(
    agentId: string,
    remote: Remote,
    ref: string | null,
  ): Promise<{ commit: string; ref: string }> {
    const { store } = this.#options;
    const listed = await this.#list(agentId, remote, patterns(ref));
    const chosen = chooseRef(parseRemoteRefs(listed.stdout.toString('utf8')), ref);
    if (!chosen) {
      throw new RepoError(
        ref === null
          ? 'The repository is empty.'
          : `The repository has no branch or tag "${shortName(ref)}".`,
      );
    }
    if ((await store.commitOf(agentId, chosen.objectId)) === null) {
      await this.#fetchObjects(agentId, remote, [`+${chosen.ref}:${fetchedRef}`], true);
    }
    // Between the two calls the branch may have moved; what was fetched counts then.
    const commit =
      (await store.commitOf(agentId, chosen.objectId)) ?? (await store.commitOf(agentId, fetchedRef));
    if (commit === null) throw new RepoError(`"${shortName(chosen.ref)}" is not a commit.`);
    await store.moveRef(agentId, `${keptRefs}/${commit}`, commit, null);
    if (chosen.ref !== 'HEAD') await store.moveRef(agentId, chosen.ref, commit, null);
    if (ref === null) await this.#pointHead(agentId, chosen.ref);
    return { commit, ref: shortName(chosen.ref) };
  }

  /** Most servers give a commit by its id; from the others everything is fetched, and the commit looked for in it. */
  async #fetchCommit(agentId: string, remote: Remote, id: string): Promise<{ commit: string; ref: string }> {
    const { store } = this.#options;
    if ((await store.commitOf(agentId, id)) === null) {
      // A server that says nothing is to have no more time here than when it is asked for a branch.
      await this.#list(agentId, remote, ['HEAD']);
      await this.#fetchObjects(agentId, remote, [`+${id}:${fetchedRef}`], true).catch((error: unknown) => {
        if (!(error instanceof RepoError)) throw error;
        return this.#fetchObjects(agentId, remote, ['+refs/heads/*:refs/berth/all/*'], false);
      });
    }
    const commit = await store.commitOf(agentId, id);
    if (commit === null) throw new RepoError(`The repository has no commit ${id}.`);
    await store.moveRef(agentId, `${keptRefs}/${commit}`, commit, null);
    return { commit, ref: commit };
  }

  async #fetchObjects(agentId: string, remote: Remote, refspecs: string[], shallow: boolean): Promise<void> {
    const depth = shallow ? ['--depth=1'] : [];
    const args = [
      'fetch',
      '--quiet',
      '--no-tags',
      '--no-recurse-submodules',
      '--no-write-fetch-head',
      ...depth,
    ];
    await this.#git(agentId, remote, [...args, '--', remote.url, ...refspecs]);
  }

  async #pointHead(agentId: string, ref: string): Promise<void> {
    if (!ref.startsWith('refs/heads/')) return;
    const gitDir = this.#options.store.dir(agentId);
    await runGit(['symbolic-ref', 'HEAD', ref], { gitDir, timeoutMs: 20_000 });
  }

  async #list(agentId: string, remote: Remote, wanted: string[]): Promise<GitResult> {
    const { listTimeoutMs, fetchTimeoutMs } = this.#options.limits;
    const args = ['ls-remote', '--symref', '--', remote.url, ...wanted];
    return this.#git(agentId, remote, args, Math.min(listTimeoutMs, fetchTimeoutMs));
  }

  async #git(agentId: string, remote: Remote, args: string[], limitMs?: number): Promise<GitResult> {
    const { store, limits, log } = this.#options;
    const timeoutMs = limitMs ?? limits.fetchTimeoutMs;
    const result = await runGit(args, {
      gitDir: store.dir(agentId),
      config: remote.config,
      env: { GIT_ALLOW_PROTOCOL: 'https' },
      timeoutMs,
      // One pack is one file, so the kernel's limit on file size is the limit on the pack.
      caps: { memoryBytes: limits.memoryBytes, fileBytes: limits.packBytes },
      maxOutputBytes: 16 * 1024 * 1024,
    });
    if (result.code === 0) return result;
    log.info('git fetch failed', { agentId, code: result.code, stderr: clean(result.stderr, remote.token) });
    throw new RepoError(
      explainFetchFailure(result.stderr, {
        timedOut: result.timedOut,
        tooLarge: (await removeHalfPacks(store.dir(agentId))) >= limits.packBytes,
        hasToken: remote.token !== null,
        packBytes: limits.packBytes,
        timeoutMs,
        isListing: limitMs !== undefined,
      }),
    );
  }

  /** The URL and where it leads to. Throws RepoError. */
  async checkUrl(url: string): Promise<CheckedUrl> {
    const { search, hash } = URL.canParse(url) ? new URL(url) : { search: '', hash: '' };
    if (search !== '' || hash !== '') throw new RepoError('The URL may have no query and no fragment.');
    return this.#options.guard.check(url, ['https:']).catch((error: unknown) => {
      throw error instanceof UrlRefused ? new RepoError(error.message, { cause: error }) : error;
    });
  }

  async #remote(request: FetchRequest): Promise<Remote> {
    const { store, extraCaFiles } = this.#options;
    const checked = await this.checkUrl(request.url);
    this.#caFile ??= writeCaBundle(store.root, extraCaFiles);
    const caFile = await this.#caFile.catch((error: unknown) => {
      this.#caFile = null;
      throw error;
    });
    return {
      url: checked.url.href,
      token: request.token,
      config: remoteConfig(checked, request.token, caFile),
    };
  }
}

/**
 * What a killed index-pack left. Returns the size of the largest: at the limit it was the kernel that ended it, of
 * which git says nothing.
 */
async function removeHalfPacks(gitDir: string): Promise<number> {
  const folder = join(gitDir, 'objects', 'pack');
  let largest = 0;
  for (const name of await readdir(folder).catch(() => [])) {
    if (!name.startsWith('tmp_')) continue;
    const found = await stat(join(folder, name)).catch(() => null);
    largest = Math.max(largest, found?.size ?? 0);
    await rm(join(folder, name), { force: true });
  }
  return largest;
}

function remoteConfig(checked: CheckedUrl, token: string | null, caFile: string): [string, string][] {
  const { url, addresses } = checked;
  const pinned = isIP(url.hostname.replace(/^\[(.*)\]$/, '$1')) === 0;
  const dial = addresses.map((address) => (address.includes(':') ? `[${address}]` : address)).join(',');
  const config: [string, string][] = [
    ['protocol.allow', 'never'],
    ['protocol.https.allow', 'always'],
    // Also keeps the old HTTP protocol from following the other server's alternates.
    ['http.followRedirects', 'false'],
    // The name is not resolved a second time: it could meanwhile stand for something inside.
    ...(pinned
      ? [['http.curloptResolve', `${url.hostname}:${url.port || '443'}:${dial}`] as [string, string]]
      : []),
    ['http.proxy', ''],
    ['http.sslVerify', 'true'],
    ['http.sslCAInfo', caFile],
    ['http.lowSpeedLimit', '1000'],
    ['http.lowSpeedTime', '20'],
    ['http.userAgent', 'git/berth'],
    ['fetch.unpackLimit', '1'],
    ['fetch.writeCommitGraph', 'false'],
    ...objectChecks('fetch').map(([key, value]): [string, string] => [key, value]),
  ];
  if (token !== null) {
    // Forges take any user name beside a token; a token with a colon brings its own.
    const pair = token.includes(':') ? token : `x-access-token:${token}`;
    const header = `Authorization: Basic ${Buffer.from(pair).toString('base64')}`;
    config.push([`http.${url.origin}/.extraHeader`, header]);
  }
  return config;
}

function patterns(ref: string | null): string[] {
  if (ref === null) return ['HEAD'];
  if (ref.startsWith('refs/')) return [ref, `${ref}^{}`];
  return [`refs/heads/${ref}`, `refs/tags/${ref}`, `refs/tags/${ref}^{}`];
}

function clean(stderr: string, token: string | null): string {
  const text = token === null ? stderr : stderr.replaceAll(token, '***');
  return text.slice(0, 2000);
}
