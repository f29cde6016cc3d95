import { capText } from './output.ts';
import type { Item, Transcript } from './transcript.ts';

/** Until the model says otherwise: less than what today's models take, so that compaction comes before a refusal. */
const assumedTokens = { anthropic: 180_000, 'openai-chat': 110_000 };
const defaultCharsPerToken = 3;
/** Enough to learn a ratio from. */
const learnFromTokens = 2000;
const fullShare = 0.8;
const tailShare = 0.25;
const keptToolItems = 4;
const trimmedText = '[left out to save room; run the tool again if it is needed]';

/** How much the model takes, learnt from what it reports and refuses, since no catalogue knows every model. */
export class Window {
  #tokens: number;
  #charsPerToken = defaultCharsPerToken;

  constructor(wire: 'anthropic' | 'openai-chat') {
    this.#tokens = assumedTokens[wire];
  }

  get chars(): number {
    return this.#tokens * this.#charsPerToken;
  }

  isNearlyFull(chars: number): boolean {
    return chars > this.chars * fullShare;
  }

  learn(chars: number, inputTokens: number): void {
    if (inputTokens >= learnFromTokens) this.#charsPerToken = Math.min(6, Math.max(1, chars / inputTokens));
  }

  /** The model refused this many characters. */
  refused(chars: number): void {
    this.#tokens = Math.min(this.#tokens, (chars / this.#charsPerToken) * 0.8);
  }
}

/**
 * Makes room: first the output of old tool calls, then everything but the latest part gives way to a summary. When no
 * summary can be had, a plain record of what the user asked takes its place: a conversation never gets stuck.
 */
export async function compact(
  transcript: Transcript,
  window: Window,
  summarize: (text: string) => Promise<string | null>,
): Promise<void> {
  transcript.replaceAll(trimOutputs(transcript.items));
  if (transcript.chars < window.chars * 0.6) return;
  const start = tailStart(transcript, window.chars * tailShare);
  if (start <= 0) return;
  const head = transcript.items.slice(0, start);
  const told = render(head, window.chars * 0.5);
  const summary = (await summarize(told)) ?? requestsOf(head, window.chars * 0.1);
  transcript.replaceAll([
    { role: 'user', text: summaryText(summary, head) },
    ...transcript.items.slice(start),
  ]);
}

function trimOutputs(items: readonly Item[]): Item[] {
  let seen = 0;
  return items
    .toReversed()
    .map((item) => {
      if (item.role !== 'tools' || ++seen <= keptToolItems) return item;
      const results = item.results.map((result) =>
        result.text.length > 300 ? { ...result, text: trimmedText } : result,
      );
      return { ...item, results };
    })
    .toReversed();
}

/** Where the kept part begins: never between a call and its result. */
function tailStart(transcript: Transcript, maxChars: number): number {
  const { items, weights } = transcript;
  let start = items.length;
  let chars = 0;
  for (let index = items.length - 1; index >= 0; index--) {
    chars += weights[index] ?? 0;
    if (chars > maxChars && start < items.length) break;
    if (items[index]?.role !== 'tools') start = index;
  }
  return start;
}

function summaryText(summary: string, head: readonly Item[]): string {
  const request = head.findLast((item) => item.role === 'user');
  const last =
    request?.role === 'user'
      ? `\n\nThe latest request in that part was:\n${capText(request.text, 4000)}`
      : '';
  return `[Earlier parts of this conversation were replaced by a summary to save room.]\n\n${summary}${last}`;
}

function requestsOf(items: readonly Item[], maxChars: number): string {
  const requests = items.flatMap((item) => (item.role === 'user' ? [`- ${capText(item.text, 500)}`] : []));
  return capText(`The user had said:\n${requests.join('\n')}`, Math.floor(maxChars));
}

function render(items: readonly Item[], maxChars: number): string {
  const parts = items.map((item) => {
    if (item.role === 'user') return `USER: ${capText(item.text, 4000)}`;
    if (item.role === 'tools')
      return item.results.map((result) => `RESULT: ${capText(result.text, 600)}`).join('\n');
    const calls = item.calls.map((call) => `CALL ${call.name}: ${capText(JSON.stringify(call.input), 600)}`);
    return [`AGENT: ${capText(item.text, 4000)}`, ...calls].join('\n');
  });
  return capText(parts.join('\n\n'), Math.floor(maxChars));
}
