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
  -- The node that works on it, as long as `due_at` is in the future.
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
  -- `sending`: the call has begun, and nobody knows how it ended.
  state text not null check (state in ('sending', 'sent', 'failed')),
  external_id text,
  sent_at timestamptz,
  primary key (event_id, place)
);
