-- Ways by which outside systems reach an agent.
create table channels (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  agent_id uuid not null references agents (id),
  kind text not null,
  name text not null,
  status text not null check (status in ('active', 'paused', 'error')),
  settings jsonb not null,
  api_base_url text,
  last_event_at timestamptz,
  last_error text,
  created_at timestamptz not null default now()
);
-- An address of the service's own mail belongs to one channel.
create unique index channels_smtp_address on channels (lower(settings ->> 'address'))
  where kind = 'email' and settings ->> 'provider' = 'smtp';
create index channels_of_agent on channels (agent_id, id);
create index channels_of_slack_app on channels ((settings ->> 'appId')) where kind = 'slack';

-- Apart from the secrets of agents: nothing of these ever goes into a sandbox.
create table channel_credentials (
  channel_id uuid not null references channels (id) on delete cascade,
  name text not null,
  -- Of a signing secret that was rotated away, and is taken until then.
  valid_until timestamptz,
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  primary key (channel_id, name)
);

create table channel_conversations (
  channel_id uuid not null references channels (id) on delete cascade,
  key text not null,
  conversation_id uuid not null,
  primary key (channel_id, key)
);

-- What came in. A row is there before the sender hears that it was taken.
create table inbound_events (
  id uuid primary key,
  channel_id uuid not null references channels (id) on delete cascade,
  org_id uuid not null,
  agent_id uuid not null,
  kind text not null,
  state text not null check (state in ('queued', 'processing', 'done', 'ignored', 'duplicate', 'failed', 'dead')),
  reason text,
  -- The same for every attempt to deliver one event.
  delivery_key text not null,
  -- The same for every event that tells of one human message; taken only by the one that is answered.
  message_key text,
  duplicate_of uuid,
  -- Events of one line are worked on one after the other: a conversation of a chat, the mail that nobody has read yet.
  line text,
  -- The event in whose turn this one is answered, with others that came while the turn before it went on.
  joined_to uuid,
  retry_count integer not null default 0,
  conversation_id uuid,
  run_id uuid,
  -- The request as it came, for work and for replays; null once it is too old.
  request jsonb,
  body bytea,
  -- Which of the events of its request it is.
  place integer not null,
  reply_to jsonb,
  attempts integer not null default 0,
  -- Attempts that ended with their process: they are no fault of the event, and do not count among the others.
  cut_offs integer not null default 0,
  -- The node that works on it, as long as `due_at` is in the future; after that, the one that was lost meanwhile. Without
  -- an attempt: the node that shows the answer of its turn while the turn goes on.
  claimed_by uuid,
  -- When it is next to be worked on; null: never again.
  due_at timestamptz,
  history jsonb not null,
  received_at timestamptz not null,
  last_seen_at timestamptz not null,
  unique (channel_id, delivery_key)
);
create unique index inbound_messages on inbound_events (channel_id, message_key) where message_key is not null;
create index inbound_of_agent on inbound_events (agent_id, id);
create index inbound_to_begin on inbound_events (org_id, due_at) where due_at is not null and run_id is null;
create index inbound_to_end on inbound_events (org_id, due_at) where due_at is not null and run_id is not null;
create index inbound_lines on inbound_events (channel_id, line, id) where due_at is not null and line is not null;
create index inbound_joined on inbound_events (joined_to) where joined_to is not null;
create index inbound_of_conversation on inbound_events (conversation_id, received_at) where conversation_id is not null;
create index inbound_copies on inbound_events (duplicate_of) where duplicate_of is not null;

-- Messages that answer an event, each sent once.
create table channel_answers (
  event_id uuid not null references inbound_events (id) on delete cascade,
  place integer not null,
  -- `sending`: the call has begun, and nobody knows how it ended. `doubtful`: and nobody can find out.
  state text not null check (state in ('sending', 'sent', 'failed', 'doubtful')),
  began_at timestamptz not null default now(),
  external_id text,
  sent_at timestamptz,
  primary key (event_id, place)
);

-- The next events to work on, the same number of each organisation, so that nobody's backlog is before another's single
-- event; of each line the first one. Each is held for a lease; `waits` are those that turned out to have to wait. A
-- function, because its plan is made once, and must not depend on what the table held when it was last analysed.
create function claim_inbound(
  p_node uuid, p_per_org integer, p_except uuid[], p_turns integer, p_lease_ms integer, p_check_ms integer, p_patience integer
) returns table (
  id uuid, channel_id uuid, org_id uuid, agent_id uuid, kind text, state text, reason text, duplicate_of uuid, joined_to uuid,
  retry_count integer, conversation_id uuid, run_id uuid, attempts integer, cut_offs integer, received_at timestamptz, history jsonb, line text,
  message_key text, place integer, reply_to jsonb, waits boolean, request jsonb, body bytea, is_followed boolean
) language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
    with recursive beginning as (
      (select org_id from inbound_events where due_at is not null and run_id is null order by org_id limit 1)
      union all
      select (select e.org_id from inbound_events e
              where e.due_at is not null and e.run_id is null and e.org_id > o.org_id order by e.org_id limit 1)
      from beginning o where o.org_id is not null
    ),
    ending as (
      (select org_id from inbound_events where due_at is not null and run_id is not null order by org_id limit 1)
      union all
      select (select e.org_id from inbound_events e
              where e.due_at is not null and e.run_id is not null and e.org_id > o.org_id order by e.org_id limit 1)
      from ending o where o.org_id is not null
    ),
    room as (
      select o.org_id, p_turns - (
        select count(*)::integer from (
          select 1 from inbound_events e join runs r on r.id = e.run_id
          where e.org_id = o.org_id and e.due_at is not null and e.run_id is not null and r.status in ('queued', 'running')
          limit p_turns) busy) as turns
      from beginning o where o.org_id is not null and not o.org_id = any (p_except)
    ),
    picked as (
      select d.id, d.waits, p_check_ms as wait_ms from ending o cross join lateral (
        select e.id, r.status in ('queued', 'running', 'awaiting_input') is true as waits
        from inbound_events e left join runs r on r.id = e.run_id
        where e.org_id = o.org_id and e.due_at <= now() and e.run_id is not null
        order by e.due_at limit p_per_org for update of e skip locked
      ) d where o.org_id is not null and not o.org_id = any (p_except)
      union all
      select d.id, d.waits, d.wait_ms from room o cross join lateral (
        select e.id, e.line is not null and exists (
            select 1 from inbound_events b
            where b.channel_id = e.channel_id and b.line = e.line and b.due_at is not null and b.id <> e.id
              and (b.id < e.id or b.run_id is not null) and b.attempts < p_patience) as waits,
          -- What is before it in its line says when it goes on; this look is for one that could not.
          least(300000, greatest(20000, extract(epoch from now() - e.received_at) * 1000))::integer as wait_ms
        from inbound_events e
        where e.org_id = o.org_id and e.due_at <= now() and e.run_id is null
        order by e.due_at limit greatest(0, least(p_per_org, o.turns)) for update of e skip locked
      ) d
    )
    update inbound_events e set
      due_at = now() + case when p.waits then p.wait_ms else p_lease_ms end * interval '1 millisecond',
      attempts = e.attempts + case when p.waits or (e.claimed_by is not null and e.attempts > 0) then 0 else 1 end,
      cut_offs = e.cut_offs + case when e.claimed_by is not null and e.attempts > 0 then 1 else 0 end,
      claimed_by = case when p.waits then null else p_node end
    from picked p where e.id = p.id
    returning e.id, e.channel_id, e.org_id, e.agent_id, e.kind, e.state, e.reason, e.duplicate_of, e.joined_to, e.retry_count,
      e.conversation_id, e.run_id, e.attempts, e.cut_offs, e.received_at, e.history, e.line, e.message_key, e.place, e.reply_to, p.waits,
      case when not p.waits and e.run_id is null then e.request end,
      case when not p.waits and e.run_id is null then e.body end,
      not p.waits and e.run_id is null and e.line is not null and exists (
        select 1 from inbound_events n
        where n.channel_id = e.channel_id and n.line = e.line and n.due_at is not null and n.id > e.id);
end $$;
