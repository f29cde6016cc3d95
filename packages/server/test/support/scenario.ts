import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { clientGit, commitFiles, type Ran } from './git-world.ts';
import type { Service } from './service.ts';

export interface Pushed {
  id: string;
  /** The client's work tree. */
  folder: string;
  /** Commits these files (all of them are kept, none removed) and pushes; resolves with what git said. */
  push(files: Record<string, string>): Promise<Ran>;
  git: ReturnType<typeof clientGit>;
  /** `conversationId` null begins a conversation. Expects 200. */
  // oxlint-disable-next-line no-explicit-any -- tests read into answers of all routes
  say(content: string, conversationId?: string | null): Promise<any>;
  /** The same without waiting: the answer to `Prefer: respond-async`. */
  // oxlint-disable-next-line no-explicit-any -- as above
  ask(content: string, conversationId?: string | null): Promise<any>;
}

export interface Workshop {
  /** A folder of the tests' own, removed by `close`. */
  home: string;
  /** An agent made by the API; with `files` they are pushed to its repository. */
  agent(files?: Record<string, string>, fields?: Record<string, unknown>): Promise<Pushed>;
  close(): Promise<void>;
}

/** What a user of a service has at hand: the API, and git in folders of their own. */
export async function workshop(service: Service): Promise<Workshop> {
  const home = await mkdtemp('/tmp/berth-w-');
  const git = clientGit(home);
  const remote = (id: string) => `http://git:${service.key}@127.0.0.1:${service.port}/git/${id}.git`;
  return {
    home,
    async agent(files, fields = {}) {
      const made = await service.api('POST', '/v1/agents', { name: 'Agent', ...fields });
      assert.equal(made.status, 201, made.text);
      const id = made.body.agent.id as string;
      const folder = await mkdtemp(join(home, 'tree-'));
      await git(['init', '-q', '-b', 'main', folder]);
      const push = async (changed: Record<string, string>) => {
        await commitFiles(git, folder, changed);
        return git(['push', remote(id), 'main'], { cwd: folder });
      };
      if (files) {
        const pushed = await push(files);
        assert.equal(pushed.code, 0, pushed.stderr);
      }
      const send = (content: string, conversationId: string | null, headers: Record<string, string>) =>
        service.api('POST', '/api/v1/chat/send', { agentId: id, conversationId, content }, headers);
      return {
        id,
        folder,
        push,
        git,
        async say(content, conversationId = null) {
          const reply = await send(content, conversationId, {});
          assert.equal(reply.status, 200, reply.text);
          return reply.body;
        },
        async ask(content, conversationId = null) {
          const reply = await send(content, conversationId, { prefer: 'respond-async' });
          assert.equal(reply.status, 202, reply.text);
          return reply.body;
        },
      };
    },
    close: () => rm(home, { recursive: true, force: true }),
  };
}

export interface LoggedEvent {
  seq: number;
  type: string;
  at: string;
  // oxlint-disable-next-line no-explicit-any -- data of every type of event
  data: any;
}

/** The whole log of a conversation, or of a run, oldest first. */
export async function logOf(
  service: Service,
  scope: { conversationId: string } | { runId: string },
): Promise<LoggedEvent[]> {
  const path = 'runId' in scope ? `/v1/runs/${scope.runId}` : `/v1/conversations/${scope.conversationId}`;
  const all: LoggedEvent[] = [];
  for (;;) {
    const page = await service.api('GET', `${path}/events?limit=100&after=${all.at(-1)?.seq ?? 0}`);
    assert.equal(page.status, 200, page.text);
    all.push(...(page.body.events as LoggedEvent[]));
    if (!page.body.hasMore) return all;
  }
}

const ends = new Set(['run.completed', 'run.failed', 'run.cancelled']);

/**
 * What holds for the log of every conversation at rest: seq counts from 1 without a gap, each run ends once and says
 * nothing after its end, each call of a tool that began has ended, and joined deltas are the message.
 */
export function checkLog(events: LoggedEvent[]): void {
  assert.deepEqual(
    events.map((event) => event.seq),
    events.map((_, index) => index + 1),
    'seq counts from 1 without a gap',
  );
  const runs = new Set(events.map((event) => event.data.runId as string));
  for (const runId of runs) {
    const own = events.filter((event) => event.data.runId === runId);
    const types = own.map((event) => event.type);
    const told = `run ${runId}: ${types.join(' ')}`;
    assert.equal(types.filter((type) => ends.has(type)).length, 1, `${told} ends once`);
    const after = types.slice(types.findIndex((type) => ends.has(type)) + 1);
    assert.deepEqual(
      after.filter((type) => type !== 'usage.recorded'),
      [],
      `${told} says nothing after its end`,
    );
    const questions = own.filter((event) => event.type === 'message.created' && event.data.role === 'user');
    assert.equal(questions.length, 1, `${told} has one question`);
    const answers = own.filter(
      (event) => event.type === 'message.created' && event.data.role === 'assistant',
    );
    assert.equal(
      answers.length,
      types.includes('run.completed') ? 1 : 0,
      `${told} has an answer when completed`,
    );
    for (const answer of answers) {
      const text = own
        .filter((event) => event.type === 'message.delta' && event.data.messageId === answer.data.id)
        .map((event) => event.data.text as string);
      assert.equal(text.join(''), answer.data.content, `${told}: joined deltas are the message`);
    }
    checkTools(own, told);
  }
}

function checkTools(own: LoggedEvent[], told: string): void {
  const open = new Set<string>();
  for (const { type, data } of own) {
    if (type === 'tool.started') open.add(data.toolCallId);
    if (type === 'tool.finished') open.delete(data.toolCallId);
  }
  assert.deepEqual([...open], [], `${told}: each call of a tool has an end`);
}

/** Processes of the host whose environment names this installation's sandboxes, or whose command line holds `text`. */
export function hostProcesses(isWanted: (commandLine: string, environment: string) => boolean): number[] {
  const found: number[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    try {
      const commandLine = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ');
      let environment = '';
      try {
        environment = readFileSync(`/proc/${name}/environ`, 'utf8');
      } catch {
        // Another user's process: its command line tells enough.
      }
      if (isWanted(commandLine, environment)) found.push(Number(name));
    } catch {
      // It ended while it was looked at.
    }
  }
  return found;
}
