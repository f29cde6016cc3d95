import type { Conversation } from './conversation.ts';

/** What the guide says next: text in tokens, or one call of the shell. */
export interface GuideReply {
  tokens: readonly string[];
  gapMs: number;
  call: { id: string; name: string; input: object } | null;
}

const maxCommands = 20;
const maxCommandChars = 32_768;
/** Of one answer. */
const maxTokens = 4096;
const maxTextChars = 32_768;
const maxSlowTokens = 1000;
const maxSlowGapMs = 5000;
/** Of all shown outputs of one answer together. */
const maxOutputChars = 16_000;

/**
 * Answers without a model, by rules that anyone can read here, so that the same conversation always gets the same
 * answer. Lines of the form `run: <command>` become calls of the harness's shell, one after the other; `say: <text>`
 * says that text; `slow: <count> <gapMs>` counts up slowly, to see a stream, a cancel or a reconnect at work.
 */
export function guide(conversation: Conversation): GuideReply {
  const reply = wholeReply(conversation);
  return { ...reply, tokens: rest(reply.tokens, conversation.said) };
}

/** What is left of an answer that was cut off after `said`. */
function rest(tokens: readonly string[], said: string): readonly string[] {
  if (said === '' || !tokens.join('').startsWith(said)) return tokens;
  let chars = said.length;
  return tokens.flatMap((token) => {
    const left = token.slice(Math.min(chars, token.length));
    chars -= Math.min(chars, token.length);
    return left === '' ? [] : [left];
  });
}

function wholeReply(conversation: Conversation): GuideReply {
  const commands = commandsIn(conversation.question);
  if (commands.length > 0) return runNext(conversation, commands);
  const said = /^\s*say:[ \t]?([\s\S]*)$/.exec(conversation.question)?.[1];
  if (said !== undefined) return say(said);
  const [, count, gap] =
    /^\s*slow:\s*(\d{1,6})(?:\s+(\d{1,6}))?\s*$/.exec(conversation.question.slice(0, maxTextChars)) ?? [];
  if (count !== undefined) return countSlowly(Number(count), Number(gap ?? 100));
  return say(introduction(conversation));
}

function commandsIn(text: string): string[] {
  const commands: string[] = [];
  for (const match of text.matchAll(/^[ \t]*run:[ \t]*(\S.*)$/gm)) {
    commands.push((match[1] as string).trimEnd());
    if (commands.length === maxCommands) break;
  }
  return commands;
}

function runNext(conversation: Conversation, commands: string[]): GuideReply {
  const { shell, results } = conversation;
  if (!shell) return say('This harness offers no shell tool, so the command cannot be run.');
  const next = commands[results.length];
  if (next === undefined) return say(report(commands, results));
  if (next.length > maxCommandChars)
    return say(
      `This command is too long: the demonstration runs none of more than ${maxCommandChars} characters.`,
    );
  const id = `call_demo_${conversation.messageCount}_${results.length + 1}`;
  return { tokens: [], gapMs: 0, call: { id, name: shell.name, input: shell.argumentsFor(next) } };
}

/** The outputs as they came back, exit codes among them; long ones lose their middle, and it is said how much. */
function report(commands: string[], results: string[]): string {
  const share = Math.floor(maxOutputChars / commands.length);
  const sections = commands.map((command, index) => {
    const output = shorten(results[index] ?? '(no result)', share);
    const fence = '`'.repeat(Math.max(3, longestTicks(output) + 1));
    return `$ ${command}\n${fence}\n${output}${output.endsWith('\n') ? '' : '\n'}${fence}`;
  });
  return `${sections.join('\n\n')}\n\n(This is Berth's demonstration provider: the sandbox ran this, no language model was asked.)`;
}

function longestTicks(text: string): number {
  return (text.match(/`+/g) ?? []).reduce((longest, ticks) => Math.max(longest, ticks.length), 0);
}

function shorten(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const head = wellFormed(text.slice(0, Math.floor(maxChars / 2)));
  // The end holds the exit code.
  const tail = wellFormed(text.slice(-Math.floor(maxChars / 2)));
  return `${head}\n[… ${text.length - head.length - tail.length} characters left out …]\n${tail}`;
}

/** A cut may have split a pair of surrogates. */
function wellFormed(text: string): string {
  return text.replace(/[\uD800-\uDBFF]$|^[\uDC00-\uDFFF]/, '');
}

/** All slow answers share it, since each may be held for long. */
const counted: readonly string[] = Array.from({ length: maxSlowTokens }, (_, index) => `${index + 1} `);

function countSlowly(count: number, gapMs: number): GuideReply {
  return { tokens: counted.slice(0, count), gapMs: Math.min(gapMs, maxSlowGapMs), call: null };
}

/** A longer text is cut, and says so. */
function say(text: string): GuideReply {
  const start = text.length > maxTextChars ? wellFormed(text.slice(0, maxTextChars)) : text;
  const words: string[] = start.match(/\s*\S+\s*?(?=\s|$)|\s+/g) ?? [];
  const tokens = words.slice(0, maxTokens);
  if (start !== text || words.length > maxTokens) {
    tokens.push(
      `\n\n(The rest is left out: the demonstration says at most ${maxTokens} words and ${maxTextChars} characters.)`,
    );
  }
  return { tokens, gapMs: 0, call: null };
}

function introduction(conversation: Conversation): string {
  const instructions = quoteStart(conversation.instructions, 160);
  const seen = [
    `- messages in this conversation: ${conversation.messageCount}`,
    `- your last one begins: ${quoteStart(conversation.question, 80)}`,
    `- the agent's instructions begin: ${instructions}`,
  ];
  return [
    'This is a demonstration and not a language model: the model of this agent is demo/guide, so fixed rules answer.',
    '',
    'What reached me:',
    ...seen,
    '',
    "What I can do: send `run: ls -la` and the command really runs in this agent's sandbox; `say: <text>` repeats a text; `slow: 20 200` counts slowly.",
    '',
    'For real answers set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY where the service runs and restart it (or store it as a secret of this agent), start Ollama on the same machine, and give the agent a model as <provider>/<model_name>. See docs/models.md.',
  ].join('\n');
}

function quoteStart(text: string, chars: number): string {
  const line = text.slice(0, maxTextChars).replace(/\s+/g, ' ').trim();
  if (line === '') return '(none)';
  return line.length <= chars ? `"${line}"` : `"${wellFormed(line.slice(0, chars))}…"`;
}
