import type { Item, ToolCall, ToolResult } from './transcript.ts';

/** Earlier turns as the host tells them; everything in them is checked, since it came over a wire. */
export interface HistoryTurn {
  role: 'user' | 'assistant';
  content: string;
  tools: HistoryTool[];
}

interface HistoryTool {
  id: string;
  title: string;
  input: unknown;
  output: string;
  status: 'completed' | 'failed' | 'unknown';
}

const unknownText =
  'The service was interrupted while this ran. It is unknown whether it happened, wholly, partly or not at all. ' +
  'Check the state before you run it again.';

const resumeText =
  'The service was interrupted while you worked on this request. The tool calls above were made then; their effects are ' +
  'in place, except where a result says that it is unknown. Nothing of your answer was kept. ' +
  'Go on from here without repeating what is done, and give the whole answer.';

export function readHistory(value: unknown): HistoryTurn[] {
  if (!Array.isArray(value)) return [];
  return value.filter(isRecord).map((turn) => ({
    role: turn['role'] === 'assistant' ? 'assistant' : 'user',
    content: asText(turn['content']),
    tools: Array.isArray(turn['tools']) ? turn['tools'].filter(isRecord).map(readTool) : [],
  }));
}

function readTool(tool: Record<string, unknown>): HistoryTool {
  const status = tool['status'];
  return {
    id: asText(tool['toolCallId']),
    title: asText(tool['title']),
    input: tool['input'],
    output: asText(tool['output']),
    status: status === 'completed' || status === 'failed' ? status : 'unknown',
  };
}

/** Items of finished turns. `nextId` gives ids that are unique in the transcript and legal on every wire. */
export function historyItems(turns: readonly HistoryTurn[], nextId: () => string): Item[] {
  return turns.flatMap((turn) => turnItems(turn, nextId));
}

/** What an interrupted attempt of the present request had done; it follows the request itself. */
export function resumeItems(turns: readonly HistoryTurn[], nextId: () => string): Item[] {
  const done = turns.flatMap((turn) => toolItems(turn.tools, nextId));
  return done.length === 0 ? [] : [...done, { role: 'user', text: resumeText }];
}

function turnItems(turn: HistoryTurn, nextId: () => string): Item[] {
  if (turn.role === 'user') return [{ role: 'user', text: turn.content }];
  const items = toolItems(turn.tools, nextId);
  if (turn.content !== '' || items.length === 0) {
    items.push({ role: 'assistant', text: turn.content, thinking: [], calls: [] });
  }
  return items;
}

/** Calls of our own tools become calls again; those of other harnesses are told in words. */
function toolItems(tools: readonly HistoryTool[], nextId: () => string): Item[] {
  const calls: ToolCall[] = [];
  const results: ToolResult[] = [];
  const told: string[] = [];
  for (const tool of tools) {
    const text = tool.status === 'unknown' ? unknownText : tool.output;
    const name = toolName(tool.input);
    if (name === null) {
      told.push(`[Earlier tool call: ${tool.title}]\n${text}`);
      continue;
    }
    const id = nextId();
    calls.push({ id, name, input: tool.input as Record<string, unknown> });
    results.push({ id, name, text, isError: tool.status !== 'completed' });
  }
  const items: Item[] = [];
  if (told.length > 0) items.push({ role: 'user', text: told.join('\n\n') });
  if (calls.length > 0) {
    items.push({ role: 'assistant', text: '', thinking: [], calls }, { role: 'tools', results });
  }
  return items;
}

/** The log keeps arguments, not names; ours differ enough to be told apart by them. */
function toolName(input: unknown): string | null {
  if (!isRecord(input)) return null;
  if (typeof input['command'] === 'string') return 'bash';
  if (typeof input['old'] === 'string' && typeof input['new'] === 'string') return 'edit';
  if (typeof input['path'] === 'string' && typeof input['content'] === 'string') return 'write';
  if (typeof input['pattern'] === 'string' || typeof input['files'] === 'string') return 'search';
  if (typeof input['question'] === 'string') return 'ask';
  if (typeof input['file'] === 'string') return 'publish';
  return typeof input['path'] === 'string' ? 'read' : null;
}

function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
