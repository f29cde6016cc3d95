-- A context id that an A2A client chose, for the conversation that it names. Ids of conversations themselves, which are
-- made by the service, need no row.
create table a2a_contexts (
  agent_id uuid not null,
  context_id text not null,
  conversation_id uuid not null,
  created_at timestamptz not null default now(),
  primary key (agent_id, context_id)
);
create unique index a2a_contexts_conversation on a2a_contexts (conversation_id);

-- A client that names a task has its id, so that the same message again is no repeated request any more.
create index idempotency_run on idempotency (run_id) where run_id is not null;

-- Lists of tasks are by the time of the last change of state, which of a run that has ended is its end.
create index runs_ended on runs (agent_id, ended_at desc, id desc) where ended_at is not null;

-- Where the updates of a task are sent. The log of its conversation is the queue: `delivered_seq` is how far it was sent.
create table a2a_push_configs (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  conversation_id uuid not null,
  run_id uuid not null,
  -- Whose it is: a revoked key ends it.
  key_id uuid not null,
  config_id text not null,
  url text not null,
  -- Of the protocol that it was registered by, and that its client reads.
  version text not null check (version in ('1.0', '0.3')),
  -- Token and credentials, as JSON.
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  delivered_seq bigint not null,
  attempts integer not null default 0,
  due_at timestamptz not null default now(),
  leased_until timestamptz,
  -- The node that sends; one that begins anew gives back what its last process held.
  leased_by text,
  ended_at timestamptz,
  last_error text,
  created_at timestamptz not null default now(),
  unique (run_id, config_id)
);
create index a2a_push_configs_open on a2a_push_configs (due_at) where ended_at is null;

-- What agent cards are signed with (ES256). The newest signs; the others are still published.
create table a2a_signing_keys (
  id text primary key,
  public_jwk jsonb not null,
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  created_at timestamptz not null default now()
);
