import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { Log } from '../domain/log.ts';
import type { DeployPushed } from '../domain/ports/repos.ts';
import { endGit, endOfGit, spawnGit } from './git-process.ts';
import { clearMarker, setMarker } from './push-marker.ts';
import { readCommands, refuseRef, zeroId } from './push-report.ts';
import type { PushCommands, PushReport, RefCommand } from './push-report.ts';
import { PushResponse } from './push-response.ts';
import { shortName } from './ref-names.ts';
import { removeQuarantines } from './quarantine.ts';
import type { RepoLimits } from './repo-limits.ts';
import { keptRefs, type RepoStore } from './repo-store.ts';
import { untouchedStarter } from './starter.ts';
import { publicMessage, terminalLines } from './terminal.ts';
import { chunksOf, openBody, pumpBody, reading, WireError } from './wire-body.ts';
import { receiveConfig } from './wire-config.ts';

export interface PushContext {
  store: RepoStore;
  limits: RepoLimits;
  log: Log;
  deploy: DeployPushed;
}

const maxCommandBytes = 256 * 1024;
const keepAliveMs = 5_000;

/**
 * One push: git stores the pack and moves the refs, then the deployed branch is deployed while the client waits. When
 * that fails, the branch goes back to where it was and the report says so, whereby `git push` exits with an error.
 * The caller holds the repository's push lock.
 */
export async function receivePush(
  context: PushContext,
  agentId: string,
  branchRef: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const body = openBody(request);
  const { head, push } = await readHead(body, context.limits);
  const dir = context.store.dir(agentId);
  const target = push.commands.find((command) => command.ref === branchRef && command.newId !== zeroId);
  if (target) {
    await replaceStarter(context.store, agentId, target, head);
    await setMarker(dir, target);
  }
  try {
    const answer = new PushResponse(response, push.capabilities);
    const refusal = await store(context, dir, head, body, request, answer);
    if (refusal && !response.headersSent) throw refusal;
    await settle(context, agentId, push, target, answer, branchRef);
  } finally {
    if (target) await clearMarker(dir);
  }
}

/** The bytes up to and beyond the command list, and what it asks for. */
async function readHead(body: Readable, limits: RepoLimits): Promise<{ head: Buffer; push: PushCommands }> {
  let head: Buffer = Buffer.alloc(0);
  for await (const chunk of chunksOf(body, limits.idleTimeoutMs)) {
    head = Buffer.concat([head, chunk]);
    const soFar = head;
    const push = reading(() => readCommands(soFar));
    if (push && push.commands.length <= limits.refsPerPush) return { head, push };
    if (push || head.length > maxCommandBytes) {
      throw new WireError(413, `A push may change at most ${limits.refsPerPush} branches and tags.`);
    }
  }
  throw new WireError(400, 'The push ended before its list of refs was complete.');
}

/** A client that took the starter commit for nothing sends zeros as the old id; git compares it with what is there. */
async function replaceStarter(
  store: RepoStore,
  agentId: string,
  target: RefCommand,
  head: Buffer,
): Promise<void> {
  if (target.oldId !== zeroId) return;
  const starter = await untouchedStarter(store, agentId, target.ref);
  if (starter === null) return;
  const at = head.indexOf(`${zeroId} ${target.newId} ${target.ref}`);
  if (at === -1) return;
  head.write(starter, at, 'latin1');
  target.oldId = starter;
}

/** Resolves when receive-pack has ended, however it ended; with what is wrong with the body when that is why. */
async function store(
  context: PushContext,
  dir: string,
  head: Buffer,
  body: Readable,
  request: IncomingMessage,
  answer: PushResponse,
): Promise<WireError | null> {
  const { limits, log } = context;
  const child = spawnGit(['receive-pack', '--stateless-rpc', dir], {
    gitDir: null,
    config: receiveConfig(limits),
    timeoutMs: limits.pushTimeoutMs,
    caps: { memoryBytes: limits.memoryBytes, fileBytes: limits.packBytes * 2 },
  });
  const ended = endOfGit(child);
  child.stdout.on('data', (chunk: Buffer) => answer.take(chunk));
  child.stderr.on('data', (chunk: Buffer) => {
    log.debug('git receive-pack wrote', { text: chunk.toString('utf8').slice(0, 500) });
  });
  let refusal: WireError | null = null;
  const isPacked = body !== request;
  const how = { head, isPacked, maxBytes: limits.packBytes * 4, idleMs: limits.idleTimeoutMs };
  // A pack that is cut off leaves nothing: its objects are in quarantine until the refs move.
  pumpBody(body, child.stdin, how).catch((error: unknown) => {
    if (error instanceof WireError) refusal = error;
    request.unpipe();
    endGit(child);
  });
  const code = await ended;
  // Git itself clears up when it is asked to end, and cannot when it was killed.
  if (code !== 0) await removeQuarantines(dir);
  return code === 0 ? null : refusal;
}

/** Deploys when the branch really moved, and writes the report that is true then. */
async function settle(
  context: PushContext,
  agentId: string,
  push: PushCommands,
  target: RefCommand | undefined,
  answer: PushResponse,
  branchRef: string,
): Promise<void> {
  const report = answer.report();
  if (report) await tellMoved(context.store, agentId, push, report, answer);
  const stored = push.commands.filter((command) => report?.refs.get(command.ref)?.ok);
  if (!target || !(await moved(context.store, agentId, target, report?.refs.get(target.ref)?.ok))) {
    if (stored.some((command) => command.newId !== zeroId)) hint(answer, branchRef);
    return answer.end(report);
  }
  const failure = await deploy(context, agentId, target, answer);
  if (failure !== null) {
    for (const line of terminalLines(`Deployment failed: ${failure}`)) answer.progress(line);
    const undone = push.capabilities.has('atomic') ? stored : [target];
    for (const command of undone) {
      await context.store.moveRef(agentId, command.ref, command.oldId, command.newId);
      if (report) refuseRef(report, command.ref, 'deployment failed');
    }
    answer.progress('The branch was taken back; the agent stays on its earlier deployment.');
  }
  answer.end(report);
}

/** Git says of a branch that somebody else has moved meanwhile only that it could not be updated, as of all else that fails. */
async function tellMoved(
  store: RepoStore,
  agentId: string,
  push: PushCommands,
  report: PushReport,
  answer: PushResponse,
): Promise<void> {
  for (const { ref, oldId } of push.commands) {
    if (report.refs.get(ref)?.lines[0] !== `ng ${ref} failed to update ref`) continue;
    const isBranch = ref.startsWith('refs/heads/');
    if (!isBranch || ((await store.commitOf(agentId, ref)) ?? zeroId) === oldId) continue;
    refuseRef(report, ref, 'fetch first');
    answer.progress(`${ref} was pushed to meanwhile: fetch first, then push again.`);
  }
}

/** Clients may ask for no report, and a killed git writes none: then the ref itself says what happened. */
async function moved(
  store: RepoStore,
  agentId: string,
  target: RefCommand,
  reported: boolean | undefined,
): Promise<boolean> {
  if (reported !== undefined) return reported;
  return target.newId !== target.oldId && (await store.commitOf(agentId, target.ref)) === target.newId;
}

function hint(answer: PushResponse, branchRef: string): void {
  const branch = shortName(branchRef);
  answer.progress(`Stored. Only pushes to ${branch} deploy: git push <remote> HEAD:${branch}`);
}

/** Null when the deployment is active, else what to tell. It goes on when the client has gone. */
async function deploy(
  context: PushContext,
  agentId: string,
  target: RefCommand,
  answer: PushResponse,
): Promise<string | null> {
  const keepAlive = setInterval(() => answer.keepAlive(), keepAliveMs);
  let begun: Promise<void> | null = null;
  try {
    await context.store.moveRef(agentId, `${keptRefs}/${target.newId}`, target.newId, null);
    const pushed = { ref: shortName(target.ref), commit: target.newId };
    await context.deploy(agentId, pushed, (line) => {
      // From its first word on the deployment is on record, and a crash does not lose it any more.
      begun ??= clearMarker(context.store.dir(agentId));
      for (const part of terminalLines(line)) answer.progress(part);
    });
    return null;
  } catch (error) {
    const message = publicMessage(error);
    if (message === null) context.log.error('deployment of a push failed', { agentId, error });
    return message ?? 'an internal error; the log of the service has the details.';
  } finally {
    clearInterval(keepAlive);
    await begun;
  }
}
