import { requireEdit } from '../domain/access.ts';
import { readCron } from '../domain/cron.ts';
import { DomainError, invalid, notFound } from '../domain/errors.ts';
import { isId, newId } from '../domain/ids.ts';
import { limits } from '../domain/limits.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Cursors } from '../domain/paging.ts';
import { requireParts, type MessagePart } from '../domain/parts.ts';
import { readName, requireContent } from '../domain/text.ts';
import { readTimeZone } from '../domain/time-zone.ts';
import type { AgentStore } from '../store/agents.ts';
import { findConversation } from '../store/conversations.ts';
import type { Database } from '../store/database.ts';
import type { ScheduleRow, ScheduleStore } from '../store/schedules.ts';
import { pageById } from './paging.ts';
import { nextTick } from './schedule-ticks.ts';
import type { FireTick } from './schedule-work.ts';
import type { ScheduleInput, SchedulePatch, SchedulesService } from './schedules-api.ts';
import { visibleAgent } from './visible-agent.ts';

export interface SchedulesDependencies {
  db: Database;
  agents: AgentStore;
  schedules: ScheduleStore;
  cursors: Cursors;
  fire: FireTick;
  now: () => number;
}

type Settings = Pick<
  ScheduleRow,
  | 'name'
  | 'cron'
  | 'timeZone'
  | 'content'
  | 'parts'
  | 'conversation'
  | 'conversationId'
  | 'onBusy'
  | 'onMissed'
>;

export function createSchedules(deps: SchedulesDependencies): SchedulesService {
  const { db, agents, schedules, cursors, now } = deps;

  async function editable(p: Principal, id: string): Promise<ScheduleRow> {
    const found = isId(id) ? await schedules.get(id) : null;
    if (!found) throw notFound();
    await visibleAgent(agents, p, found.agentId);
    requireEdit(p);
    return found;
  }

  /** The schedule as it is after the change; what cannot be is refused, and nothing is changed. */
  async function change(
    p: Principal,
    id: string,
    work: (before: ScheduleRow) => ScheduleRow | Promise<ScheduleRow>,
  ): Promise<ScheduleRow> {
    await editable(p, id);
    return db.tx(async () => {
      const before = await schedules.lock(id);
      if (!before) throw notFound();
      await schedules.update(await work(before));
      return (await schedules.lock(id))!;
    });
  }

  async function requireOwnConversation(agentId: string, id: string | null): Promise<void> {
    if (id === null) return;
    const found = isId(id) ? await findConversation(db, id) : null;
    if (found?.agentId !== agentId) throw invalid('conversationId', 'is no conversation of this agent.');
  }

  return {
    async list(p, agentId, query) {
      await visibleAgent(agents, p, agentId);
      requireEdit(p);
      return pageById(cursors, `schedules:${agentId}`, query, (at) => schedules.list(agentId, at));
    },

    get: editable,

    async create(p, agentId, input) {
      const agent = await visibleAgent(agents, p, agentId);
      requireEdit(p);
      const settings = readSettings(defaults(input), input);
      await requireOwnConversation(agentId, settings.conversationId);
      const id = newId();
      return db.tx(async () => {
        // The lock makes counting and adding one step, and nothing is added to an agent that is being deleted.
        if (!(await agents.lock(agentId))) throw notFound();
        if ((await schedules.count(agentId)) >= limits.schedulesPerAgent) {
          throw new DomainError(
            'conflict',
            `An agent has at most ${limits.schedulesPerAgent} schedules; delete one first.`,
          );
        }
        const dueAt = nextTick(settings, now());
        await schedules.insert({ id, orgId: agent.orgId, agentId, status: 'active', dueAt, ...settings });
        return (await schedules.get(id))!;
      });
    },

    update: (p, id, patch) =>
      change(p, id, async (before) => {
        const settings = readSettings(before, patch);
        if (settings.conversationId !== before.conversationId)
          await requireOwnConversation(before.agentId, settings.conversationId);
        const isSame = settings.cron === before.cron && settings.timeZone === before.timeZone;
        const isDueAnew = before.status === 'active' && !isSame;
        return { ...before, ...settings, dueAt: isDueAnew ? nextTick(settings, now()) : before.dueAt };
      }),

    async remove(p, id) {
      await editable(p, id);
      await schedules.remove(id);
    },

    pause: (p, id) => change(p, id, (before) => ({ ...before, status: 'paused', dueAt: null })),

    resume: (p, id) =>
      change(p, id, (before) =>
        before.status === 'active' ? before : { ...before, status: 'active', dueAt: nextTick(before, now()) },
      ),

    async runNow(p, id) {
      await editable(p, id);
      return db.tx(async () => {
        const schedule = await schedules.lock(id);
        if (!schedule) throw notFound();
        return deps.fire(schedule, { trigger: 'manual', dueAt: new Date(now()), missedBefore: 0 });
      });
    },

    async ticks(p, id, query) {
      await editable(p, id);
      return pageById(cursors, `ticks:${id}`, query, (at) => schedules.ticks(id, at));
    },
  };
}

function defaults({ cron, content }: ScheduleInput): Settings {
  return {
    // Whatever blanks stand between its fields: a name has no tabs and no line breaks.
    name: cron.trim().replace(/\s+/g, ' ').slice(0, limits.nameChars),
    cron,
    timeZone: 'UTC',
    content,
    parts: [],
    conversation: 'new',
    conversationId: null,
    onBusy: 'enqueue',
    onMissed: 'once',
  };
}

function readSettings(before: Settings, patch: SchedulePatch): Settings {
  const cron = (patch.cron ?? before.cron).trim();
  readCron('cron', cron);
  const timeZone = patch.timeZone ?? before.timeZone;
  readTimeZone('timeZone', timeZone);
  const { content, parts } = readMessage(patch.content ?? before.content, patch.parts ?? before.parts);
  const conversation = patch.conversation ?? before.conversation;
  if (conversation === 'new' && typeof patch.conversationId === 'string')
    throw invalid('conversationId', 'can be given with conversation "kept" only.');
  const kept = patch.conversationId === undefined ? before.conversationId : patch.conversationId;
  return {
    name: readName('name', patch.name ?? before.name),
    cron,
    timeZone,
    content,
    parts,
    conversation,
    conversationId: conversation === 'kept' ? kept : null,
    onBusy: patch.onBusy ?? before.onBusy,
    onMissed: patch.onMissed ?? before.onMissed,
  };
}

/** As a send would take it. */
function readMessage(content: string, parts: MessagePart[]): { content: string; parts: MessagePart[] } {
  requireParts('parts', parts);
  if (content !== '' || parts.length === 0) requireContent('content', content);
  return { content, parts };
}
