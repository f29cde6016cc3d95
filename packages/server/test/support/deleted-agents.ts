import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../../src/store/database.ts';
import type { Reply, Service } from './service.ts';
import { until } from './until.ts';

/** What became of deletions: answered, cut off by a kill of the service and done all the same, or not done. */
export interface Deletions {
  acknowledged: number;
  doneUnsaid: number;
  notDone: number;
}

interface Victim {
  id: string;
  /** Runs that it was accepted for. */
  runIds: string[];
  isGone: boolean;
  talking: Promise<void>;
}

/** Agents that are there to be deleted, so many at a time. */
const READY = 2;
/** Between two turns of one of them, which shall not keep those of the run from being executed. */
const REST_MS = 1_000;
/** Longer than the longest pause between two tries to remove what is left. */
const REMOVED_MS = 150_000;
/** Within it a request arrives, is worked on and is answered. */
const KILLED_MS = 25;

/**
 * Agents beside those of the run, which somebody speaks to until they are deleted. What they are asked changes their files
 * and takes a while, so that turns are under way in them, or sandboxes are being started.
 */
export class DeletedAgents {
  readonly #service: Service;
  readonly #draw: () => number;
  readonly #all: Victim[] = [];
  readonly deletions: Deletions = { acknowledged: 0, doneUnsaid: 0, notDone: 0 };
  #isOver = false;

  constructor(service: Service, draw: () => number) {
    this.#service = service;
    this.#draw = draw;
  }

  get #living(): Victim[] {
    return this.#all.filter((victim) => !victim.isGone);
  }

  /** Makes agents in place of those that were deleted, until `finish`. */
  async run(): Promise<void> {
    while (!this.#isOver) {
      if (this.#living.length < READY) await this.#make();
      else await delay(50);
    }
  }

  async #make(): Promise<void> {
    const headers = { 'idempotency-key': randomUUID() };
    const made = await this.#asked('POST', '/v1/agents', { name: 'To be deleted' }, headers, [201]);
    if (!made) return;
    const victim: Victim = {
      ...{ id: made.body.agent.id, runIds: [], isGone: false },
      talking: Promise.resolve(),
    };
    const path = `/v1/agents/${victim.id}`;
    await this.#asked('PUT', `${path}/secrets/TOKEN`, { value: 'of no use' }, {}, [200, 201, 204]);
    const key = { 'idempotency-key': randomUUID() };
    await this.#asked('POST', `${path}/api-keys`, { name: 'Its own' }, key, [201]);
    victim.talking = this.#talk(victim);
    this.#all.push(victim);
  }

  /** Null when all is over before it was answered as expected: the service may be away at any time. */
  async #asked(
    method: string,
    path: string,
    body: unknown,
    headers: Record<string, string>,
    expected: number[],
  ): Promise<Reply | null> {
    while (!this.#isOver) {
      const reply = await this.#service.api(method, path, body, headers).catch(() => null);
      if (reply && expected.includes(reply.status)) return reply;
      assert.ok(reply === null || reply.status >= 500 || reply.status === 409, `refused: ${reply?.text}`);
      await delay(50);
    }
    return null;
  }

  async #talk(victim: Victim): Promise<void> {
    for (let n = 1; ; n += 1) {
      const content = `run: echo ${n} >> done.txt; sleep 0.3; mkdir -p a/${n}; touch a/${n}/{1..50}`;
      const headers = { prefer: 'respond-async', 'idempotency-key': randomUUID() };
      const send = { agentId: victim.id, conversationId: null, content };
      const sent = await this.#asked('POST', '/api/v1/chat/send', send, headers, [200, 202, 404]);
      if (sent === null || sent.status === 404) return;
      victim.runIds.push(sent.body.runId);
      while (!this.#isOver) {
        const reply = await this.#service.api('GET', `/v1/runs/${sent.body.runId}`).catch(() => null);
        if (reply?.status === 404) return;
        if (/^(completed|failed|cancelled)$/.test(reply?.body?.run?.status)) break;
        await delay(200);
      }
      await delay(REST_MS);
    }
  }

  /** Deletes one of them, sometimes as the service is killed. False when there is none. */
  async strike(): Promise<boolean> {
    const living = this.#living;
    const victim = living[Math.floor(this.#draw() * living.length)];
    if (!victim) return false;
    const path = `/v1/agents/${victim.id}`;
    const isKilled = this.#draw() < 0.5;
    const afterMs = this.#draw() * KILLED_MS;
    const asking = this.#service.api('DELETE', path).catch(() => null);
    if (isKilled) {
      await delay(afterMs);
      await this.#service.kill9();
    }
    const answer = await asking;
    if (isKilled) await this.#service.restart();
    if (answer !== null) assert.ok(answer.status === 204 || answer.status >= 500, answer.text);
    const seen = await until('the service says whether it is there', async () => {
      const reply = await this.#service.api('GET', path).catch(() => null);
      return reply?.status === 200 || reply?.status === 404 ? reply.status : null;
    });
    const isSaid = answer?.status === 204;
    if (isSaid) assert.equal(seen, 404, 'what was said to be deleted is');
    victim.isGone = seen === 404;
    this.deletions[isSaid ? 'acknowledged' : victim.isGone ? 'doneUnsaid' : 'notDone'] += 1;
    return true;
  }

  /** Makes and asks nothing more; those that are there still are whole. */
  async finish(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#all.map((victim) => victim.talking));
    for (const { id } of this.#living) {
      const asked = { agentId: id, conversationId: null, content: 'run: echo who""le' };
      const reply = await until(
        'an agent that is not deleted answers',
        async () => {
          const said = await this.#service.api('POST', '/api/v1/chat/send', asked).catch(() => null);
          return said?.status === 200 ? said : null;
        },
        REMOVED_MS,
      );
      assert.match(JSON.stringify(reply.body), /whole/);
    }
  }

  /** Of those that are gone nothing is left, and all their runs have an end. */
  async check(db: Database): Promise<void> {
    const ids = this.#all.filter((victim) => victim.isGone).map(({ id }) => id);
    const unpurged = () => db.sql`select id from agents where deleted_at is not null and purged_at is null`;
    await until(
      'all that was left of deleted agents is removed',
      async () => (await unpurged()).length === 0,
      REMOVED_MS,
    );
    const runIds = this.#all.filter((victim) => victim.isGone).flatMap((victim) => victim.runIds);
    const open = () => db.sql`
      select id, status from runs where status in ('queued', 'running', 'awaiting_input')
        and (agent_id = any (${ids}::uuid[]) or id = any (${runIds}::uuid[]))`;
    await until('every run of a deleted agent has an end', async () => (await open()).length === 0);
    const left = await db.sql`
      select 'sandbox' as what, agent_id from sandboxes where state in ('starting', 'running', 'stopping')
        and agent_id = any (${ids}::uuid[])
      union all select 'secret', agent_id from secrets where agent_id = any (${ids}::uuid[])
      union all select 'key', agent_id from api_keys where revoked_at is null and agent_id = any (${ids}::uuid[])
      union all select 'lane', agent_id from lanes where state <> 'idle' and agent_id = any (${ids}::uuid[])`;
    assert.deepEqual([...left], [], 'no row speaks of a deleted agent');
    const dataDir = this.#service.dataDir;
    const mounts = readFileSync('/proc/self/mountinfo', 'utf8');
    for (const id of ids) {
      for (const path of [`volumes/${id}`, `repos/${id}.git`, `disks/${id}.img`])
        assert.ok(!existsSync(join(dataDir, path)), `${path} of a deleted agent is removed`);
      assert.ok(!mounts.includes(id), 'no disk of a deleted agent is mounted');
    }
    const aside = readdirSync(join(dataDir, 'repos')).filter((name) => name.startsWith('.old-'));
    assert.deepEqual(aside, [], 'no repository is left aside');
  }
}
