import type { Database } from './database.ts';

/** `doubtful`: it may have been sent, the provider cannot be asked, and it is not sent again unless somebody says so. */
export type AnswerState = 'sending' | 'sent' | 'failed' | 'doubtful';

export interface AnswerRow {
  state: AnswerState;
  /** When the call began that `state` tells of. */
  beganAt: Date;
  /** What the provider calls the message. While `sending`: it is there, and grows or has to be made whole. */
  externalId: string | null;
}

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

    /** How many turns were begun in the last hour for what this sender sent to the channel. */
    async answeredToLately(channelId: string, sender: string): Promise<number> {
      const rows = await db.sql<{ count: number }[]>`
        select count(distinct run_id)::int as count from inbound_events
        where channel_id = ${channelId} and sender = ${sender} and run_id is not null
          and received_at > now() - interval '1 hour'`;
      return rows[0]!.count;
    },

    /** What became of the messages that answer an event, by their place. */
    async answers(eventId: string): Promise<Map<number, AnswerRow>> {
      const rows = await db.sql<(AnswerRow & { place: number })[]>`
        select place, state, began_at as "beganAt", external_id as "externalId"
        from channel_answers where event_id = ${eventId}`;
      return new Map(rows.map(({ place, ...row }) => [place, row]));
    },

    /** The provider did not take it: the next attempt has nothing to be unsure of. */
    async removeAnswer(eventId: string, place: number): Promise<void> {
      await db.sql`delete from channel_answers where event_id = ${eventId} and place = ${place}`;
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
          state = excluded.state, external_id = excluded.external_id, sent_at = excluded.sent_at,
          began_at = case when excluded.state = 'sending' then now() else channel_answers.began_at end`;
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
