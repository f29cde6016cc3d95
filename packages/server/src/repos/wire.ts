import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { GitTarget, GitWire } from '../domain/ports/repos.ts';
import { GateFull, KeyGate } from '../domain/key-gate.ts';
import { whenStill } from '../domain/still-reader.ts';
import { endOfGit, killGit, runGit, spawnGit } from './git-process.ts';
import type { Maintenance } from './maintenance.ts';
import { flushPacket, packet, sideBand } from './pkt-line.ts';
import { repairInterrupted } from './push-marker.ts';
import { receivePush, type PushContext } from './push.ts';
import { untouchedStarter } from './starter.ts';
import { ReadBodies } from './read-bodies.ts';
import { drained, formatMiB, WireError } from './wire-body.ts';
import { receiveConfig, uploadConfig } from './wire-config.ts';

/** So that no agent or organisation, however much it asks, leaves the others without a place. */
const readPlaces = {
  ...{ total: 16, perKey: 4, perGroup: 12 },
  ...{ maxWaiting: 64, waitingPerKey: 16, waitingPerGroup: 48 },
};
const pushPlaces = {
  ...{ total: 64, perKey: 1, perGroup: 48 },
  ...{ maxWaiting: 64, waitingPerKey: 16, waitingPerGroup: 48 },
};
const noCache = { 'Cache-Control': 'no-cache, max-age=0, must-revalidate', Pragma: 'no-cache' };

/** git's smart HTTP by `git upload-pack` and `git receive-pack` with `--stateless-rpc` (gitprotocol-http). */
export class SmartHttp implements GitWire {
  readonly #context: PushContext;
  readonly #maintenance: Maintenance;
  readonly #reads = new KeyGate(readPlaces);
  readonly #bodies: ReadBodies;
  /** One push after another in each repository, its deployment included. */
  readonly #pushes = new KeyGate(pushPlaces);
  readonly #pushing = new Set<string>();

  constructor(context: PushContext, maintenance: Maintenance) {
    this.#context = context;
    this.#bodies = new ReadBodies(context.limits);
    this.#maintenance = maintenance;
  }

  async handle(target: GitTarget, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    try {
      if (!(await this.#context.store.exists(target.agentId))) throw new WireError(404, 'Not found.');
      if (!target.advertise && target.service === 'git-receive-pack') {
        return await this.#push(target, request, response, gone.signal);
      }
      if (target.advertise) {
        await this.#inPlace(target, gone.signal, () =>
          this.#advertise(target, request, response, gone.signal),
        );
        return;
      }
      const { bytes, drop } = await this.#bodies.take(target, request);
      try {
        if (gone.signal.aborted) return;
        await this.#inPlace(target, gone.signal, () =>
          this.#upload(target, { request, bytes }, response, gone.signal),
        );
      } finally {
        drop();
      }
    } catch (error) {
      this.#fail(error, target, response, gone.signal.aborted);
    }
  }

  async #inPlace({ agentId, orgId }: GitTarget, gone: AbortSignal, work: () => Promise<void>): Promise<void> {
    const leave = await this.#reads.enter(agentId, gone, orgId);
    try {
      await work();
    } finally {
      leave();
    }
  }

  async #advertise(
    target: GitTarget,
    request: IncomingMessage,
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const { store, limits } = this.#context;
    const dir = store.dir(target.agentId);
    if (!this.#pushing.has(target.agentId)) await repairInterrupted(store, target.agentId);
    const writes = target.service === 'git-receive-pack';
    const config = [...(writes ? receiveConfig(limits) : uploadConfig())];
    if (writes) {
      await store.removeStaleLocks(target.agentId);
      await this.#requireRoom(dir);
      const branchRef = await headRef(dir);
      const starter = await untouchedStarter(store, target.agentId, branchRef);
      if (starter !== null) config.push(['transfer.hideRefs', branchRef]);
    }
    const protocol = protocolOf(request);
    const args = [target.service.slice('git-'.length), '--stateless-rpc', '--http-backend-info-refs', dir];
    const result = await runGit(args, {
      gitDir: null,
      config,
      env: protocol === null ? {} : { GIT_PROTOCOL: protocol },
      timeoutMs: 30_000,
      maxOutputBytes: 64 * 1024 * 1024,
    });
    if (gone.aborted) return;
    if (result.code !== 0)
      throw new Error(`git ${args[0]} ended with ${result.code}: ${result.stderr.slice(0, 500)}`);
    // Protocol version 2 has no service line (gitprotocol-v2, "HTTP Transport").
    const plain = !result.stdout.subarray(0, 64).includes('version 2');
    const intro = plain
      ? Buffer.concat([packet(`# service=${target.service}\n`), flushPacket])
      : Buffer.alloc(0);
    response.writeHead(200, { 'Content-Type': `application/x-${target.service}-advertisement`, ...noCache });
    response.end(Buffer.concat([intro, result.stdout]));
  }

  async #upload(
    target: GitTarget,
    { request, bytes }: { request: IncomingMessage; bytes: Buffer },
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const { store, limits } = this.#context;
    if (gone.aborted) return;
    const protocol = protocolOf(request);
    const child = spawnGit(['upload-pack', '--stateless-rpc', store.dir(target.agentId)], {
      gitDir: null,
      config: uploadConfig(),
      env: protocol === null ? {} : { GIT_PROTOCOL: protocol },
      timeoutMs: limits.serveTimeoutMs,
      caps: { memoryBytes: limits.memoryBytes },
    });
    const kill = (): void => killGit(child);
    gone.addEventListener('abort', kill, { once: true });
    child.stderr.resume();
    const moving = whenStill(response, limits.stillTimeoutMs, () => response.destroy());
    try {
      child.stdin.end(bytes);
      await Promise.allSettled([relay(child.stdout, response), endOfGit(child)]);
    } finally {
      moving();
    }
    if (response.destroyed) return;
    if (!response.headersSent) response.writeHead(200, uploadHead);
    response.end();
  }

  async #push(
    { agentId, orgId }: GitTarget,
    request: IncomingMessage,
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const leave = await this.#pushes.enter(agentId, gone, orgId);
    this.#pushing.add(agentId);
    try {
      const dir = this.#context.store.dir(agentId);
      await this.#requireRoom(dir);
      await receivePush(this.#context, agentId, await headRef(dir), request, response);
    } finally {
      this.#pushing.delete(agentId);
      leave();
      this.#maintenance.pushed(agentId);
    }
  }

  async #requireRoom(dir: string): Promise<void> {
    const { repoBytes } = this.#context.limits;
    if ((await repoSize(dir)) <= repoBytes) return;
    throw new WireError(
      403,
      `The repository is larger than ${formatMiB(repoBytes)} and takes no more pushes.`,
    );
  }

  #fail(error: unknown, target: GitTarget, response: ServerResponse, gone: boolean): void {
    const known = error instanceof WireError;
    const full = error instanceof GateFull;
    if (!known && !full && !gone) this.#context.log.error('git request failed', { ...target, error });
    if (response.destroyed || response.writableEnded) return;
    if (response.headersSent) {
      response.end(sideBand(3, 'The service failed in the middle of this request.\n'));
      return;
    }
    const status = known ? error.status : full ? 503 : 500;
    const text = known
      ? error.message
      : full
        ? 'Too many git requests at once; try again.'
        : 'Internal error.';
    const retry = full ? { 'Retry-After': '5' } : {};
    // The rest of the body is not read, so the connection cannot serve another request.
    response.writeHead(status, {
      'Content-Type': 'text/plain; charset=utf-8',
      Connection: 'close',
      ...retry,
    });
    response.end(`${text}\n`);
  }
}

const uploadHead = { 'Content-Type': 'application/x-git-upload-pack-result', ...noCache };

/** The answer begins with git's first word: until then the request can still be refused. */
async function relay(words: Readable, response: ServerResponse): Promise<void> {
  for await (const chunk of words) {
    if (response.destroyed) return;
    if (!response.headersSent) response.writeHead(200, uploadHead);
    if (!response.write(chunk)) await drained(response);
  }
}

/** The branch that deploys: the one that HEAD names. */
async function headRef(dir: string): Promise<string> {
  const text = await readFile(join(dir, 'HEAD'), 'utf8');
  return /^ref: (refs\/heads\/\S+)/.exec(text)?.[1] ?? 'refs/heads/main';
}

function protocolOf(request: IncomingMessage): string | null {
  const value = request.headers['git-protocol'];
  return typeof value === 'string' && /^[a-z0-9=:._-]{1,64}$/i.test(value) ? value : null;
}

/** Bytes of all objects. */
export async function repoSize(dir: string): Promise<number> {
  const result = await runGit(['count-objects', '-v'], { gitDir: dir, timeoutMs: 20_000 });
  let kib = 0;
  for (const match of result.stdout
    .toString('latin1')
    .matchAll(/^(?:size|size-pack|size-garbage): (\d+)$/gm)) {
    kib += Number(match[1]);
  }
  return kib * 1024;
}
