-- Messages that an agent gets by the clock.
create table schedules (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  agent_id uuid not null references agents (id),
  name text not null,
  status text not null check (status in ('active', 'paused')),
  cron text not null,
  time_zone text not null,
  content text not null,
  -- json and not jsonb: the order of fields is the sender's.
  parts json not null,
  conversation text not null check (conversation in ('new', 'kept')),
  -- Of `kept`: the one that goes on; null until there is one.
  conversation_id uuid,
  on_busy text not null check (on_busy in ('enqueue', 'interrupt', 'reject')),
  on_missed text not null check (on_missed in ('skip', 'once')),
  -- The tick that comes next; null: paused, or there is none.
  due_at timestamptz,
  -- When it is to be looked at: at the tick, or later when it was refused for a while.
  look_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index schedules_of_agent on schedules (agent_id, id);
create index schedules_look on schedules (look_at) where look_at is not null;

-- What became of each tick. The row is written in one transaction with the message and the time of the next tick.
create table schedule_ticks (
  id uuid primary key,
  schedule_id uuid not null references schedules (id) on delete cascade,
  trigger text not null check (trigger in ('schedule', 'manual')),
  state text not null check (state in ('fired', 'skipped')),
  due_at timestamptz not null,
  fired_at timestamptz,
  -- Why it was skipped: a code, and in words.
  reason text,
  message text,
  -- Of ticks that nobody was there for: how many this row stands for, besides itself.
  missed_before integer not null default 0,
  conversation_id uuid,
  run_id uuid
);
create unique index schedule_ticks_once on schedule_ticks (schedule_id, due_at) where trigger = 'schedule';
create index schedule_ticks_list on schedule_ticks (schedule_id, id);
