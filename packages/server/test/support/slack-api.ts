import { providerStandIn } from './provider-stand-in.ts';

interface Posted {
  ts: string;
  thread: string;
  text: string;
  mark: string;
  isGrowing: boolean;
  updates: number;
  /** All that it has said, one after the other. */
  texts: string[];
}

interface Sent {
  ts?: string;
  thread_ts?: string;
  markdown_text: string;
  metadata: { event_payload: { mark: string; growing?: boolean } };
}

type Said = { status?: number; headers?: Record<string, string>; body: unknown } | null;

/** Slack's API on loopback: keeps messages as Slack does, shows them when it is asked, and counts. */
export async function slackApi() {
  const messages: Posted[] = [];
  /** In place of its own answer, what it says to a call: null = nothing, though it was done. */
  let instead: ((method: string, sent: Sent) => Said | undefined) | null = null;
  const server = await providerStandIn(({ path, body }) => {
    const asked = new URL(path, 'http://slack');
    const method = asked.pathname.slice(1);
    if (method.startsWith('conversations.')) {
      const thread = asked.searchParams.get('ts');
      const found = messages.filter((message) => thread === null || message.thread === thread);
      return { body: { ok: true, messages: found.map(shown) } };
    }
    const sent = JSON.parse(body) as Sent;
    const said = instead?.(method, sent);
    if (said !== undefined && said !== null) return said;
    const { mark, growing = false } = sent.metadata.event_payload;
    let message = messages.find(({ ts }) => ts === sent.ts);
    if (method === 'chat.postMessage') {
      const ts = `1.${String(messages.length + 1).padStart(6, '0')}`;
      const thread = sent.thread_ts ?? '';
      const text = sent.markdown_text;
      message = { ts, thread, text, mark, isGrowing: growing, updates: 0, texts: [text] };
      messages.push(message);
    } else if (message) {
      message.updates += 1;
      message.texts.push(sent.markdown_text);
      Object.assign(message, { text: sent.markdown_text, mark, isGrowing: growing });
    }
    if (said === null) return null;
    return { body: message ? { ok: true, ts: message.ts } : { ok: false, error: 'message_not_found' } };
  });
  return {
    ...server,
    messages,
    /** Those of a thread, the oldest first. */
    in: (thread: string) => messages.filter((message) => message.thread === thread),
    answerBy(answer: typeof instead): void {
      instead = answer;
    },
  };
}

const shown = ({ ts, thread, text, mark, isGrowing }: Posted) => ({
  ts,
  thread_ts: thread,
  text,
  metadata: { event_type: 'berth_answer', event_payload: isGrowing ? { mark, growing: true } : { mark } },
});
