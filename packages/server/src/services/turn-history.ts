import type { ConversationEvent, ToolEvent } from '../domain/events.ts';
import type { HistoryTool, HistoryTurn } from '../domain/ports/harness.ts';
import type { Database } from '../store/database.ts';
import { messagesBeforeRun } from '../store/conversations.ts';
import { eventsAfter, eventsOfRun, toolEvents, unansweredText } from '../store/events.ts';

/** What a harness is told that does not know a conversation, all of it from the event log. */
export interface TurnHistory {
  /** The turns before a run, oldest first. `seq` is that of its `run.started`. */
  before(run: { conversationId: string; runId: string; seq: number }): Promise<HistoryTurn[]>;
  /**
   * What earlier attempts of a run have done: their tool calls. Their text is void (`run.retrying`). Empty when there
   * was nothing.
   */
  interrupted(runId: string): Promise<HistoryTurn[]>;
  /** What the present attempt of a run has on record. `seq` is that of its `run.started`. */
  attempt(run: {
    conversationId: string;
    runId: string;
    seq: number;
    messageId: string;
  }): Promise<AttemptRecord>;
}

export interface AttemptRecord {
  /** The joined deltas of its message. */
  content: string;
  /** A tool call came after the last text. */
  needsBreak: boolean;
  /** Its calls in the order in which they began, each as it was told last. */
  tools: { phase: 'started' | 'updated' | 'finished'; event: ToolEvent }[];
  artifactIds: string[];
}

/** A harness is given this much at most: the newest turns that fit. What it makes of them is up to it. */
const MAX_MESSAGES = 400;
const MAX_CHARS = 2_000_000;
const PAGE = 1_000;
/** Of `run.started` in the first turn of a conversation: after `message.created` and `run.queued`. */
const FIRST_STARTED_SEQ = 3;

export function createTurnHistory(db: Database): TurnHistory {
  return {
    async before({ conversationId, runId, seq }) {
      if (seq <= FIRST_STARTED_SEQ) return [];
      const messages = await messagesBeforeRun(db, conversationId, runId, MAX_MESSAGES);
      const runIds = [...new Set(messages.map((message) => message.runId))];
      if (runIds.length === 0) return [];
      const answered = new Set(
        messages.filter((message) => message.role === 'assistant').map((message) => message.runId),
      );
      const [tools, broken] = await Promise.all([
        toolEvents(db, runIds),
        unansweredText(
          db,
          runIds.filter((id) => !answered.has(id)),
        ),
      ]);
      const toolsOf = Map.groupBy(tools, (event) => event.runId);
      const turns = messages.flatMap(({ runId, role, content }): HistoryTurn[] => {
        const turn = {
          role,
          content,
          tools: role === 'assistant' ? toolsOfEvents(toolsOf.get(runId) ?? []) : [],
        };
        if (role === 'assistant' || answered.has(runId)) return [turn];
        // A turn that failed or was stopped: what it had said and done by then.
        const rest = { content: broken.get(runId) ?? '', tools: toolsOfEvents(toolsOf.get(runId) ?? []) };
        const isEmpty = rest.content === '' && rest.tools.length === 0;
        return isEmpty ? [turn] : [turn, { role: 'assistant', ...rest }];
      });
      return newest(turns);
    },

    async interrupted(runId) {
      const tools = toolsOfEvents(await eventsOfRun(db, runId));
      return tools.length === 0 ? [] : [{ role: 'assistant', content: '', tools }];
    },

    async attempt({ runId, seq, messageId }) {
      const record: AttemptRecord = { content: '', needsBreak: false, tools: [], artifactIds: [] };
      const places = new Map<string, number>();
      for (let after = seq; ;) {
        const events = await eventsAfter(db, { runId }, after, PAGE);
        for (const event of events) addToRecord(record, places, messageId, event);
        if (events.length < PAGE) return record;
        after = events.at(-1)!.seq;
      }
    },
  };
}

function addToRecord(
  record: AttemptRecord,
  places: Map<string, number>,
  messageId: string,
  { type, data }: ConversationEvent,
): void {
  if (type === 'message.delta' && data.messageId === messageId) {
    record.content += data.text;
    record.needsBreak = false;
  }
  if (type === 'artifact.updated' && !record.artifactIds.includes(data.artifactId)) {
    record.artifactIds.push(data.artifactId);
  }
  if (type !== 'tool.started' && type !== 'tool.updated' && type !== 'tool.finished') return;
  record.needsBreak = true;
  const phase = type.slice('tool.'.length) as AttemptRecord['tools'][number]['phase'];
  const place = places.get(data.toolCallId) ?? record.tools.length;
  places.set(data.toolCallId, place);
  record.tools[place] = { phase, event: data };
}

/** Calls in the order in which they began; one whose end is not in the log may or may not have happened. */
function toolsOfEvents(events: ConversationEvent[]): HistoryTool[] {
  const tools = new Map<string, HistoryTool>();
  // Ids are the harness's own and may come again in another attempt, after an unfinished call.
  let attempt = 0;
  for (const event of events) {
    if (event.type === 'run.started') attempt += 1;
    if (event.type !== 'tool.started' && event.type !== 'tool.updated' && event.type !== 'tool.finished')
      continue;
    const { toolCallId, title, input, output, status } = event.data;
    const key = `${attempt} ${toolCallId}`;
    const before = tools.get(key);
    const isDone = event.type === 'tool.finished' && (status === 'completed' || status === 'failed');
    tools.set(key, {
      toolCallId,
      title,
      input: input ?? before?.input ?? null,
      output: output ?? before?.output ?? null,
      status: isDone ? status : 'unknown',
    });
  }
  return [...tools.values()];
}

function newest(turns: HistoryTurn[]): HistoryTurn[] {
  let chars = 0;
  let first = turns.length;
  while (first > 0) {
    const turn = turns[first - 1]!;
    chars += turn.content.length + (turn.tools.length > 0 ? JSON.stringify(turn.tools).length : 0);
    if (chars > MAX_CHARS) break;
    first -= 1;
  }
  return turns.slice(first);
}
