-- Ids are UUIDs of version 7 made by the service, so that "newest first" is id order. Money is micro-dollars.

create table orgs (
  id uuid primary key,
  name text not null,
  created_at timestamptz not null default now()
);

create table agents (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  slot integer generated always as identity unique,
  name text not null,
  description text not null,
  model text not null,
  external_git_url text,
  deployment_id uuid,
  -- The node that holds the agent's sandbox; a run is claimed there or, when it is free, by any node.
  node_id uuid,
  -- Counts changes that a running sandbox cannot see (model, secrets, deployment): it is replaced before its next turn.
  generation integer not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  deleted_at timestamptz,
  -- When the host had removed what it kept of a deleted agent: its volume and repository.
  purged_at timestamptz
);
create index agents_unpurged on agents (id) where deleted_at is not null and purged_at is null;
create index agents_org on agents (org_id, id desc) where deleted_at is null;

create table api_keys (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  agent_id uuid references agents (id),
  name text not null,
  prefix text not null,
  hash text not null unique,
  scope text not null check (scope in ('use', 'edit')),
  binding text not null check (binding in ('agent-bound', 'org-bound')),
  rate_limit_quota integer,
  rate_limit_window_seconds integer,
  last_used_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  check ((binding = 'agent-bound') = (agent_id is not null))
);
create index api_keys_agent on api_keys (agent_id, id desc) where revoked_at is null;
create index api_keys_org on api_keys (org_id, id desc) where revoked_at is null;

-- value = AES-256-GCM under a data key of the row's own; wrapped_key = that data key under the key-encryption key.
create table secrets (
  id uuid primary key,
  agent_id uuid not null references agents (id),
  key text not null,
  hosts text[] not null default '{}',
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (agent_id, key)
);

create table deployments (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  agent_id uuid not null references agents (id),
  commit text,
  ref text not null,
  source text not null,
  status text not null check (status in ('pending', 'ready', 'failed')),
  error text,
  -- agent.json as read from the commit, validated.
  manifest jsonb,
  created_at timestamptz not null default now(),
  activated_at timestamptz
);
create index deployments_agent on deployments (agent_id, id desc);
create index deployments_pending on deployments (agent_id, id) where status = 'pending';

-- What is written with each message has no foreign keys but the lane's: rows are only written by the run's transactions,
-- which look themselves, none of these parents is ever removed, and each such key would lock and rewrite its parent's row.
create table conversations (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  title text not null,
  source text not null,
  created_at timestamptz not null default now(),
  deleted_at timestamptz
);
create index conversations_agent on conversations (agent_id, id desc) where deleted_at is null;

-- One lane per conversation: its mailbox counter, its owner and the counter of its event log. The owner's lease is its
-- node's row: a node that is not seen any more has lost all its lanes.
create table lanes (
  conversation_id uuid primary key references conversations (id),
  org_id uuid not null,
  agent_id uuid not null,
  state text not null check (state in ('idle', 'ready', 'running')),
  -- Runs queued and not yet claimed. A counter, because a look-up inside the settling update would lose a wake-up.
  pending integer not null default 0,
  ready_at timestamptz,
  -- The run that is under way; of a ready lane: one that was interrupted and goes before the queued ones.
  run_id uuid,
  node_id uuid,
  -- Every write of the lane's owner carries it; a lost lease changes no row.
  epoch bigint not null default 0,
  -- The owner's last write, so that one whose answer was lost with the connection is not written twice.
  write_no integer not null default 0,
  -- Up to which position of its harness's output the present attempt is on record: where another process goes on.
  told bigint not null default 0,
  -- The present attempt waits for its sandbox: its prompt was not sent, so the attempt does not count when it is lost. Set
  -- with the claim, so that there is no moment in between.
  waits boolean not null default false,
  next_seq bigint not null default 1,
  last_message_at timestamptz not null default now()
) with (fillfactor = 70);
create index lanes_ready on lanes (ready_at) where state = 'ready';
create index lanes_owned on lanes (node_id) where state = 'running';

create table runs (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  conversation_id uuid not null,
  deployment_id uuid,
  key_id uuid,
  user_message_id uuid not null,
  -- The lane's counter when the run was accepted: the order in which the runs of a conversation execute.
  accept_seq bigint not null,
  -- The assistant's message that the present attempt streams.
  message_id uuid,
  status text not null check (status in ('queued', 'running', 'awaiting_input', 'completed', 'failed', 'cancelled')),
  attempt integer not null default 0,
  -- Attempts that do not count against the limit: lost before their prompt was sent, or stopped with the service.
  uncounted integer not null default 0,
  cancel_requested_at timestamptz,
  deadline_at timestamptz,
  error_code text,
  error_text text,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  cost_micros bigint not null default 0,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  ended_at timestamptz
) with (fillfactor = 70);
create index runs_agent on runs (agent_id, id desc);
create index runs_conversation on runs (conversation_id, accept_seq);
create index runs_queued on runs (conversation_id, accept_seq) where status = 'queued';
create index runs_active on runs (org_id, agent_id) where status in ('queued', 'running', 'awaiting_input');

-- What a run asked its caller: a permission, or an input.
create table questions (
  run_id uuid not null,
  request_id text not null,
  kind text not null check (kind in ('permission', 'input')),
  -- As the harness asked it, and as a caller answered it; the answer is null also when nobody will answer any more.
  question json not null,
  answer json,
  resolved_at timestamptz,
  primary key (run_id, request_id)
);

create table messages (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  conversation_id uuid not null,
  run_id uuid not null,
  role text not null check (role in ('user', 'assistant')),
  content text not null,
  -- Of a user's message: the surface by which it came; what came beside its text (null = nothing), and the same in words,
  -- which is all that the history of a conversation tells of it. json and not jsonb: the order of fields is the sender's.
  source text,
  extras json,
  extras_text text,
  -- Of an assistant's message: the artifacts of its run, which are in the events; null = none.
  artifact_ids json,
  created_at timestamptz not null default now()
);
create index messages_conversation on messages (conversation_id, id desc);

create table events (
  conversation_id uuid not null,
  seq bigint not null,
  run_id uuid not null,
  type text not null,
  -- json and not jsonb: it keeps the text as it was written, and takes \u0000, which tool output may hold.
  data json not null,
  at timestamptz not null default now(),
  primary key (conversation_id, seq)
);
create index events_run on events (run_id, seq);

-- The ledger: append-only, nothing is recomputed in place.
create table usage_ledger (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  run_id uuid,
  key_id uuid,
  meter text not null,
  model text,
  quantity bigint not null,
  -- Micro-dollars per million units; null = the price is not known, which is not the same as free.
  unit_price bigint,
  price_version text not null,
  cost_micros bigint not null,
  at timestamptz not null default now()
);
create index usage_ledger_org on usage_ledger (org_id, at);
create index usage_ledger_run on usage_ledger (run_id);

-- The first answer of a POST with an Idempotency-Key. Bodies are sealed, since the creation of a key answers its value.
create table idempotency (
  key_id uuid not null,
  idempotency_key text not null,
  request_hash text not null,
  run_id uuid,
  status integer,
  headers jsonb,
  sealed_body bytea,
  wrapped_key bytea,
  kek_id text,
  created_at timestamptz not null default now(),
  primary key (key_id, idempotency_key)
);
create index idempotency_age on idempotency (created_at);

create table nodes (
  id uuid primary key,
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now()
);

create table sandboxes (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  node_id uuid not null,
  driver text not null,
  deployment_id uuid,
  -- What it was started under, so that a later process of its node knows whether it still serves.
  model text not null,
  generation integer not null,
  state text not null check (state in ('starting', 'running', 'stopping', 'stopped', 'failed')),
  -- SHA-256 of the token by which the sandbox reaches the model gateway.
  token_hash text not null,
  reason text,
  created_at timestamptz not null default now(),
  stopped_at timestamptz
);
create index sandboxes_live on sandboxes (node_id) where state in ('starting', 'running', 'stopping');

-- What a service that was restarted must know of the brokered secrets of a sandbox that lived on: the placeholders, and
-- the seed of the sandbox's certificate authority.
create table sandbox_brokers (
  sandbox_id uuid primary key references sandboxes (id) on delete cascade,
  agent_id uuid not null,
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null
);
create index sandbox_brokers_agent on sandbox_brokers (agent_id);

-- What each replica let through in a rate-limit window; the others subtract it. Losing it costs one window.
create unlogged table rate_usage (
  key_id uuid not null,
  window_start timestamptz not null,
  node_id uuid not null,
  used integer not null,
  primary key (key_id, window_start, node_id)
);

create table settings (
  name text primary key,
  value jsonb not null
);
