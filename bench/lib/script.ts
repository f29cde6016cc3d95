/** How the scripted model answers one message; it is written into the message itself. */
export interface Script {
  tokens: number;
  /** From the request to the first token. */
  firstMs: number;
  /** Between two tokens; 0 = all of them in one write. */
  gapMs: number;
}

/** What a message of the bench says. */
export function messageOf({ tokens, firstMs, gapMs }: Script): string {
  return `Answer with tokens=${tokens} first=${firstMs} gap=${gapMs} and nothing else.`;
}

/** The last such text in a request body: earlier messages of the conversation stand before it. */
export function scriptIn(body: string): Script {
  const at = body.lastIndexOf('tokens=');
  const match = /^tokens=(\d+) first=(\d+) gap=(\d+)/.exec(body.slice(at, at + 80));
  if (at < 0 || !match) throw new Error('The request has no script.');
  return { tokens: Number(match[1]), firstMs: Number(match[2]), gapMs: Number(match[3]) };
}

export const answerOf = (tokens: number): string => Array.from({ length: tokens }, tokenAt).join('');

export function tokenAt(_: unknown, index: number): string {
  return `word${index} `;
}
