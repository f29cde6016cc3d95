/** What `hook-process.ts` is asked to send, and what came of it. */

export interface HookLoad {
  url: string;
  secret: string;
  /** Slack: one message each, in a thread of its own. Mail: the same hostile mail, again and again. */
  kind: 'slack' | 'bomb';
  count: number;
  /** Null: all at once. */
  perSecond: number | null;
  connections: number;
  /** Makes ids that no other load has. */
  run: number;
}

export interface HookReply {
  /** From the moment at which it was due; of those that were taken. */
  takenMs: number[];
  /** With a status that asks for another attempt, and Retry-After. */
  refusedMs: number[];
  /** Anything else, by status; 0 = no answer. */
  others: Record<string, number>;
}

const padding = 'lorem ipsum dolor sit amet '.repeat(55);

export function slackBody(run: number, index: number): string {
  const ts = `${1_700_000_000 + run}.${String(index).padStart(6, '0')}`;
  return JSON.stringify({
    team_id: 'T061EG9R6',
    api_app_id: 'A0PNCHHK2',
    event: {
      type: 'app_mention',
      user: 'U061F7AUR',
      text: `<@U0BOT> Answer with tokens=5 first=0 gap=0 and nothing else.`,
      ts,
      event_ts: ts,
      channel: 'C0LAN2Q65',
      blocks: [{ type: 'rich_text', text: padding }],
    },
    type: 'event_callback',
    event_id: `Ev${run}x${index}`,
    authorizations: [{ team_id: 'T061EG9R6', user_id: 'U0BOT', is_bot: true }],
  });
}
