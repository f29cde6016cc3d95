import type { Database } from './database.ts';

export type AnswerState = 'sending' | 'sent' | 'failed';

export type ChannelAnswerStore = ReturnType<typeof createChannelAnswerStore>;

/** Messages that answer inbound events, and the conversations that those belong to. */
export function createChannelAnswerStore(db: Database) {
  return {
    /** How many turns of the conversation were begun in the last hour. */
    async answeredLately(conversationId: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(distinct run_id)::int as count from inbound_events
        where conversation_id = ${conversationId} and run_id is not null and received_at > now() - interval '1 hour'`;
      return rows[0]!.count;
    },

    /** What became of the messages that answer an event, by their place. */
    async answers(eventId: string): Promise<Map<number, AnswerState>> {
      const rows = await db.sql<{ place: number; state: AnswerState }[]>`
        select place, state from channel_answers where event_id = ${eventId}`;
      return new Map(rows.map((row) => [row.place, row.state]));
    },

    /** Durable before the call is made: whoever comes after a crash knows that it may have been. */
    async putAnswer(
      eventId: string,
      place: number,
      state: AnswerState,
      externalId: string | null,
    ): Promise<void> {
      await db.sql`
        insert into channel_answers (event_id, place, state, external_id, sent_at)
        values (${eventId}, ${place}, ${state}, ${externalId}, ${state === 'sent' ? new Date() : null})
        on conflict (event_id, place) do update set
          state = excluded.state, external_id = excluded.external_id, sent_at = excluded.sent_at`;
    },

    async conversationOf(channelId: string, keys: string[]): Promise<string | null> {
      if (keys.length === 0) return null;
      const rows = await db.sql<{ conversationId: string }[]>`
        select k.conversation_id as "conversationId"
        from unnest(${keys}::text[]) with ordinality as given (key, rank)
        join channel_conversations k on k.channel_id = ${channelId} and k.key = given.key
        join conversations c on c.id = k.conversation_id and c.deleted_at is null
        order by given.rank limit 1`;
      return rows[0]?.conversationId ?? null;
    },

    async rememberConversation(channelId: string, keys: string[], conversationId: string): Promise<void> {
      await db.sql`
        insert into channel_conversations (channel_id, key, conversation_id)
        select ${channelId}, key, ${conversationId} from unnest(${[...new Set(keys)]}::text[]) as key
        on conflict (channel_id, key) do update set conversation_id = excluded.conversation_id`;
    },
  };
}
