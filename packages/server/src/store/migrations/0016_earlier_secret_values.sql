-- What brokered secrets were before they were rotated, deleted or given other hosts: a host may still tell it, so its answers
-- are searched for it a while longer (docs/decisions/0290-values-told-later.md). Sealed for the same agent and key.
create table earlier_secret_values (
  id uuid primary key,
  agent_id uuid not null references agents (id),
  key text not null,
  hosts text[] not null,
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  replaced_at timestamptz not null default now()
);
create index earlier_secret_values_agent on earlier_secret_values (agent_id, replaced_at);
