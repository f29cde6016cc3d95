import type { HistoryTurn } from '../domain/ports/harness.ts';

const maxTurnChars = 4000;
const maxPreambleChars = 60_000;

/** Earlier turns as a text, for agents that cannot take them as such. The oldest give way first; '' when there are none. */
export function historyPreamble(turns: readonly HistoryTurn[]): string {
  const parts: string[] = [];
  let chars = 0;
  for (const turn of turns.toReversed()) {
    const part = `${turn.role === 'user' ? 'User' : 'You'}: ${cut(turn.content)}${toolLines(turn)}`;
    chars += part.length;
    if (chars > maxPreambleChars) break;
    parts.unshift(part);
  }
  if (parts.length === 0) return '';
  const dropped = turns.length - parts.length;
  const note = dropped > 0 ? `(${dropped} earlier ones are left out.)\n\n` : '';
  return `This conversation began before you were started. Its turns so far:\n\n${note}${parts.join('\n\n')}`;
}

/** What an interrupted attempt of the present request had done; '' when nothing. */
export function resumePreamble(turns: readonly HistoryTurn[]): string {
  const lines = turns.map(toolLines).join('');
  if (lines === '') return '';
  return (
    'You were interrupted while you worked on the next request. These tool calls had been made; do not repeat the finished ' +
    `ones, and check the state before you repeat one whose outcome is unknown:${lines}`
  );
}

function toolLines(turn: HistoryTurn): string {
  return turn.tools.map((tool) => `\n- [tool, ${tool.status}] ${cut(tool.title, 300)}`).join('');
}

function cut(text: string, maxChars = maxTurnChars): string {
  return text.length <= maxChars ? text : `${text.slice(0, maxChars).toWellFormed()}…`;
}
