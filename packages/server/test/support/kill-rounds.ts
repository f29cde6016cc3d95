import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isId } from '../../src/domain/ids.ts';
import { createBubblewrap } from '../../src/sandbox/bubblewrap.ts';
import { readMounts } from '../../src/sandbox/cgroup/mounts.ts';
import { DeletedAgents, type Deletions } from './deleted-agents.ts';
import { gauge } from './gauge.ts';
import { checkAnswer, checkOwnTools, contentOf, isKept } from './kill-turns.ts';
import { silentLog } from './log.ts';
import { Releases } from './releases.ts';
import {
  checkLog,
  hostProcesses,
  logOf,
  workshop,
  type LoggedEvent,
  type Pushed,
  type Workshop,
} from './scenario.ts';
import {
  AGENT_DISK_MIB,
  helpersOf,
  installation,
  parentOf,
  SERVICE_DISK_MIB,
  strike,
  type Fault,
} from './faults.ts';
import { openServiceDatabase } from './scenario-world.ts';
import { startService, type Service } from './service.ts';
import { until } from './until.ts';
import { whatIsLeft } from './what-is-left.ts';
import { checkSeen, view, type Viewer } from './viewer.ts';

export interface KillPlan {
  turns: number;
  kills: number;
  /**
   * Least and most milliseconds that the service lives before a kill; the first comes as soon as a turn has begun. After a
   * life in which no turn was settled the next one is twice as long, as often as that happens: where all is slow, no
   * sandbox would start in any of them.
   */
  pauseMs: [number, number];
  agents: number;
  conversations: number;
  seed: number;
  /** What happens at each kill, drawn from these; SIGKILL of the service when absent. */
  faults?: readonly Fault[];
  /** Further variables of the service. */
  env?: Record<string, string>;
  say?: (line: string) => void;
}

export interface KillReport {
  accepted: number;
  completed: number;
  retried: number;
  lost: number;
  /** Commands that said that they wrote to the workspace; all of it was there at the end. */
  kept: number;
  /** Failed because a process in the sandbox was killed that the harness needs, or its disk was full. */
  harnessExits: number;
  struck: Partial<Record<Fault, number>>;
  /** Of them, those that came while a turn was accepted and had no end, by the times of the log. */
  amidWork: number;
  deletions: Deletions;
  /** Sends whose answer was lost with the connection and that were repeated under their key. */
  resent: number;
  viewerReconnects: number;
  events: number;
  /** Why attempts were given up and runs failed, and how often each. */
  reasons: Record<string, number>;
}

interface Sent {
  agentId: string;
  conversationId: string;
  runId: string;
  marker: string;
  content: string;
}

const MAX_STRETCH = 16;
/** Kills that come faster than turns end would fail most of them as lost, which proves less than an answer. */
const MAX_ATTEMPTS = 10;
/** Of the accepted, one in so many may be lost, after all of its attempts: as a rule none is. */
const LOST_IN = 100;

/** Mulberry32: the same seed gives the same turns and the same pauses before the kills. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Sends turns to several conversations of several agents, kills the service by SIGKILL at random moments and starts it
 * again, then checks that every accepted message has exactly one settled run, that no event is missing or twice, and
 * that nothing is left on the host that no row knows.
 */
export async function killRounds(plan: KillPlan): Promise<KillReport> {
  const fills = plan.faults?.some((fault) => fault === 'disk' || fault === 'volume') ?? false;
  const service = await startService({
    ...(fills && { diskMiB: SERVICE_DISK_MIB }),
    env: {
      ...(fills && { BERTH_SANDBOX_DISK_MB: String(AGENT_DISK_MIB) }),
      BERTH_LEASE_SECONDS: '2',
      // As users have it.
      BERTH_DATABASE_POOL: '8',
      BERTH_DETACH: 'always',
      BERTH_WARM_SANDBOXES: String(WARM),
      BERTH_DRAIN_SECONDS: '0',
      BERTH_RATE_LIMIT: '100000/60',
      ...plan.env,
      BERTH_RUN_MAX_ATTEMPTS: String(MAX_ATTEMPTS),
    },
  });
  const shop = await workshop(service);
  const viewers = new Map<string, Viewer>();
  try {
    return await rounds(plan, service, shop, viewers);
  } catch (error) {
    const file = `/tmp/berth-kill-rounds-${process.pid}`;
    await writeFile(`${file}.log`, service.logs());
    await writeFile(`${file}.json`, await whatIsLeft(service).catch(String));
    throw new Error(
      `${(error as Error).message}\nThe log of the service is in ${file}.log, and what it has not ended in ${file}.json.`,
      { cause: error },
    );
  } finally {
    for (const viewer of viewers.values()) await viewer.stop();
    await shop.close();
    await service.end();
  }
}

async function rounds(
  plan: KillPlan,
  service: Service,
  shop: Workshop,
  viewers: Map<string, Viewer>,
): Promise<KillReport> {
  const draw = random(plan.seed);
  const agents: Pushed[] = [];
  for (let n = 0; n < plan.agents; n += 1) agents.push(await shop.agent({ 'AGENTS.md': `agent ${n}\n` }));
  const talks = Array.from({ length: plan.conversations }, (_, n) => ({
    agent: agents[n % agents.length]!,
    conversationId: null as string | null,
  }));
  const todo = Array.from({ length: plan.turns }, (_, n) => ({
    number: n,
    talk: talks[n % talks.length]!,
    draw: draw(),
    marker: `m${n}x${plan.seed}`,
  }));
  const [least, most] = plan.pauseMs;
  const pauses = Array.from({ length: plan.kills }, () => least + draw() * (most - least));

  const sent: Sent[] = [];
  let resent = 0;
  let waitedFor = 0;
  let seenSettled = 0;
  const releases = new Releases();
  // One sender for each conversation, so that the order of its turns is known.
  const senders = talks.map(async (talk) => {
    for (const turn of todo.filter((one) => one.talk === talk)) {
      await releases.of(turn.number);
      const content = contentOf(turn.draw, turn.marker);
      const { body, tries } = await sendUntilAccepted(service, talk.agent.id, talk.conversationId, content);
      resent += tries - 1;
      talk.conversationId = body.conversationId;
      if (!viewers.has(body.conversationId))
        viewers.set(body.conversationId, view(service, body.conversationId));
      sent.push({ ...body, agentId: talk.agent.id, marker: turn.marker, content });
      // Turns pile up sometimes, and sometimes one is waited for.
      if (turn.draw < 0.6) {
        waitedFor += 1;
        await settled(service, body.runId);
        waitedFor -= 1;
        seenSettled += 1;
      }
    }
  });
  const kinds = plan.faults ?? (['service'] as const);
  const deleted = new DeletedAgents(service, random(plan.seed + 1));
  const making = kinds.includes('delete') ? deleted.run() : Promise.resolve();
  const hit = (fault: Fault) => (fault === 'delete' ? deleted.strike() : strike(service, fault, draw));
  const struck: KillReport['struck'] = {};
  const struckAt: number[] = [];
  const hasBegun = () =>
    [...viewers.values()].some(({ seen }) => seen.some(({ type }) => type === 'run.started'));
  const killer = (async () => {
    let stretch = 1;
    for (const [index, pauseMs] of pauses.entries()) {
      const settledBefore = seenSettled;
      // Before each fault there is something new to hit.
      releases.upTo(Math.ceil((plan.turns * (index + 1)) / plan.kills));
      if (index === 0) await until('a turn has begun', hasBegun);
      else {
        await delay(pauseMs * stretch);
        const isStuck = waitedFor > 0 && seenSettled === settledBefore;
        stretch = isStuck ? Math.min(stretch * 2, MAX_STRETCH) : 1;
      }
      struckAt.push(Date.now());
      let fault = pickOne(kinds, draw);
      // There may be no sandbox to hit at the moment; some fault is always to be had.
      for (let tries = 1; !(await hit(fault)); tries += 1) {
        assert.ok(tries < 100, 'a fault can be made');
        fault = pickOne(kinds, draw);
      }
      struck[fault] = (struck[fault] ?? 0) + 1;
      plan.say?.(
        `${index + 1} of ${plan.kills}: ${fault} with ${sent.length} of ${plan.turns} turns accepted`,
      );
    }
  })();
  await Promise.all([Promise.all([...senders, killer]).finally(() => deleted.finish()), making]);
  for (const { runId } of sent) await settled(service, runId);

  const { spans, ...report } = await checkAll(
    service,
    sent,
    talks.map((talk) => talk.conversationId!),
    viewers,
    // Whoever kills the launcher from inside ends the harness.
    [
      'lost',
      ...(kinds.includes('inside') ? ['harness_exit'] : []),
      ...(kinds.includes('volume') ? ['sandbox_disk_full'] : []),
    ],
    kinds.some((kind) => kind === 'inside' || kind === 'volume' || kind === 'disk'),
  );
  const kept = await checkMarkers(service, agents, sent, kinds.includes('inside'));
  await until('no sandbox has leaked', async () => (await gauge(service, 'berth_sandboxes_leaked')) === 0);
  await checkArea(service, deleted);
  await service.stop();
  await checkNothingRuns(service);
  const amidWork = struckAt.filter((at) => spans.some(([from, to]) => from <= at && at < to)).length;
  return { ...report, kept, resent, struck, amidWork, deletions: deleted.deletions };
}

const pickOne = <T>(from: readonly T[], draw: () => number): T => from[Math.floor(draw() * from.length)]!;

async function sendUntilAccepted(
  service: Service,
  agentId: string,
  conversationId: string | null,
  content: string,
): Promise<{ body: { conversationId: string; runId: string }; tries: number }> {
  const headers = { prefer: 'respond-async', 'idempotency-key': randomUUID() };
  const endMs = Date.now() + 600_000;
  for (let tries = 1; ; tries += 1) {
    const send = { agentId, conversationId, content };
    const reply = await service.api('POST', '/api/v1/chat/send', send, headers).catch(() => null);
    if (reply?.status === 202 || reply?.status === 200) return { body: reply.body, tries };
    assert.ok(reply === null || reply.status >= 500 || reply.status === 409, `refused: ${reply?.text}`);
    assert.ok(Date.now() < endMs, `not accepted within ten minutes; last answer: ${reply?.text}`);
    await delay(50);
  }
}

const terminal = new Set(['completed', 'failed', 'cancelled']);

/** While the service is killed again and again, a turn may have to wait for many of its lives. */
async function settled(service: Service, runId: string): Promise<void> {
  let last = 'nothing';
  await until(
    `run ${runId} has settled`,
    async () => {
      const reply = await service.api('GET', `/v1/runs/${runId}`).catch(() => null);
      last = reply?.text ?? last;
      return terminal.has(reply?.body?.run?.status);
    },
    600_000,
  ).catch((error: Error) => {
    throw new Error(`${error.message} Last seen: ${last}`);
  });
}

async function checkAll(
  service: Service,
  sent: Sent[],
  conversationIds: string[],
  viewers: Map<string, Viewer>,
  mayFailAs: string[],
  mayFail: boolean,
): Promise<
  Omit<KillReport, 'kept' | 'resent' | 'struck' | 'amidWork' | 'deletions'> & { spans: [number, number][] }
> {
  const report = {
    accepted: sent.length,
    completed: 0,
    retried: 0,
    lost: 0,
    harnessExits: 0,
    viewerReconnects: 0,
    events: 0,
    reasons: {} as Record<string, number>,
    /** When each turn was accepted and when it had its end, in milliseconds. */
    spans: [] as [number, number][],
  };
  const count = (reason: string) => (report.reasons[reason] = (report.reasons[reason] ?? 0) + 1);
  for (const conversationId of conversationIds) {
    const log = await logOf(service, { conversationId });
    report.events += log.length;
    checkLog(log);
    const viewer = viewers.get(conversationId)!;
    await until('a viewer has seen the whole log', () => viewer.seen.length >= log.length);
    checkSeen(viewer, log);
    report.viewerReconnects += viewer.reconnects;
    const mine = sent.filter((one) => one.conversationId === conversationId);
    const asked = log.filter((event) => event.type === 'message.created' && event.data.role === 'user');
    assert.deepEqual(
      asked.map(({ data }) => [data.runId, data.content]),
      mine.map(({ runId, content }) => [runId, content]),
      'every accepted message is there once, in its order, and no other',
    );
    for (const { runId, marker, content } of mine) {
      const own = log.filter((event) => event.data.runId === runId);
      const end = own.find((event) => /^run\.(completed|failed|cancelled)$/.test(event.type))!;
      report.spans.push([Date.parse(own[0]!.at), Date.parse(end.at)]);
      const retries = own.filter((event) => event.type === 'run.retrying');
      if (retries.length > 0) report.retried += 1;
      for (const { data } of retries) count(data.reason);
      checkOwnTools(content, own);
      // What an orderly stop has ended is tried again however often that happens.
      const counted = retries.filter(({ data }) => !data.reason.startsWith('The service was stopped;'));
      const attempts = retries.length + 1;
      if (end.type !== 'run.completed') {
        const { code, error } = end.data.error ?? {};
        assert.ok(mayFailAs.includes(code), `${content}: ${JSON.stringify(end)}`);
        // A harness that was ended from outside is as little to blame as one whose service was lost.
        if (code === 'lost' || / was ended by /.test(error)) {
          const last = `its last event is ${JSON.stringify(end)}`;
          assert.ok(
            counted.length + 1 >= MAX_ATTEMPTS,
            `${content} was given up after ${counted.length + 1} of ${MAX_ATTEMPTS} attempts; ${last}`,
          );
        }
        report[code === 'lost' ? 'lost' : 'harnessExits'] += 1;
        count(`${code}: ${error}`);
        continue;
      }
      report.completed += 1;
      const answer = own.find(
        (event) => event.type === 'message.created' && event.data.role === 'assistant',
      )!;
      checkAnswer(content, marker, answer.data.content, { mayFail, attempts });
    }
  }
  assert.ok(
    report.lost * LOST_IN <= report.accepted,
    `of ${report.accepted} accepted, ${report.lost} ended as lost; one in ${LOST_IN} may`,
  );
  return report;
}

/**
 * A command ran once at most, however often its turn was begun (its begin is in the log before it runs). What one has said to
 * be kept is in the workspace, whatever was killed since; and it ran, unless its turn was cut off in the middle of it.
 */
async function checkMarkers(
  service: Service,
  agents: Pushed[],
  sent: Sent[],
  mayKillCommands: boolean,
): Promise<number> {
  let kept = 0;
  for (const agent of agents) {
    const told = await agent.say('run: touch done.txt; sort done.txt | uniq -c');
    const found = [...(told.message.content as string).matchAll(/^\s*(\d+) (m\d+x\d+)$/gm)];
    const counts = new Map(found.map(([, count, marker]) => [marker!, Number(count)]));
    for (const { agentId, runId, marker, content } of sent) {
      if (agentId !== agent.id || !content.includes('done.txt')) continue;
      const log = await logOf(service, { runId });
      const attempts = attemptsOf(log);
      const count = counts.get(marker) ?? 0;
      assert.ok(count <= 1, `${marker} ran ${count} times in ${attempts.length} attempts`);
      if (log.some((event) => isKept(event, marker))) {
        assert.equal(count, 1, `${marker} was kept, and is in the workspace`);
        kept += 1;
      }
      const hasEnded = attempts.at(-1)!.some((event) => event.type === 'run.completed');
      if (attempts.length === 1 && hasEnded && !mayKillCommands)
        assert.equal(count, 1, `${marker} ran in the only attempt`);
    }
  }
  assert.ok(kept > 0, 'something was kept in a workspace');
  return kept;
}

function attemptsOf(log: LoggedEvent[]): LoggedEvent[][] {
  const starts = log.flatMap((event, index) => (event.type === 'run.started' ? [index] : []));
  return starts.map((start, n) => log.slice(start, starts[n + 1]));
}

/** The ids of what is there on the host: processes, cgroups, folders. */
async function onHost(service: Service): Promise<string[]> {
  const areaDir = await mkdtemp('/tmp/berth-a-');
  const driver = createBubblewrap({ areaDir, name: installation(service), log: silentLog });
  try {
    const ids = await driver.list();
    const folders = await readdir(join(service.dataDir, 'run')).catch(() => []);
    return [...new Set([...ids, ...folders.filter(isId)])];
  } finally {
    await driver.close();
    await rm(areaDir, { recursive: true, force: true });
  }
}

/** Sandboxes that are kept ready for agents to come. */
const WARM = 1;

async function checkArea(service: Service, deleted: DeletedAgents): Promise<void> {
  await until('no helper is there but that of the service', () => {
    const all = helpersOf(service);
    // Without the children that wait to mount.
    const helpers = all.filter((pid) => !all.includes(parentOf(pid)));
    return helpers.length <= 1 && helpers.every((pid) => parentOf(pid) === service.pid);
  });
  const db = openServiceDatabase(service);
  try {
    await deleted.check(db);
    const rows = await db.sql<{ id: string }[]>`
      select id from sandboxes where state in ('starting', 'running', 'stopping')`;
    const known = new Set(rows.map((row) => row.id));
    const unknown = (await onHost(service)).filter((id) => !known.has(id));
    assert.ok(
      unknown.length <= WARM,
      `nothing but what is kept ready is on the host that no row knows, but ${unknown.length} are`,
    );
    const agents = new Set(
      (await db.sql<{ id: string }[]>`select id from agents where deleted_at is null`).map((row) => row.id),
    );
    const volumes = await readdir(join(service.dataDir, 'volumes'));
    assert.deepEqual(
      volumes.filter((id) => !agents.has(id)),
      [],
      'no volume is without its agent',
    );
  } finally {
    await db.close();
  }
}

async function checkNothingRuns(service: Service): Promise<void> {
  // Also what those that were killed had made. Before anybody else looks, which makes and removes the same folders.
  const groups = readMounts().mounts.map(({ mountPoint }) =>
    join(mountPoint, `berth-${installation(service)}`),
  );
  assert.deepEqual(
    groups.filter((path) => existsSync(path)),
    [],
    'no cgroup of the installation is left',
  );
  assert.deepEqual(await onHost(service), [], 'after the end nothing is left on the host');
  const mark = `${installation(service)}/`;
  const left = () =>
    hostProcesses((line, env) => line.includes(mark) || env.includes(`BERTH_SANDBOX=${mark}`));
  await until('no process of the installation is left', () => left().length === 0);
  await until('no helper of the installation is left', () => helpersOf(service).length === 0);
  const ofData = () => hostProcesses((line) => line.includes(service.dataDir));
  await until('no process of the data directory is left', () => ofData().length === 0);
}
