-- The newest sandbox of an agent, and what an agent has cost since its start, are shown on each look at it.
create index sandboxes_agent on sandboxes (agent_id, id desc);
create index usage_ledger_agent on usage_ledger (agent_id, at);

-- A volume at a moment. Its content lies in files, under their hash: `chunks` has SHA-256 and length of each, in order.
create table snapshots (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  agent_id uuid not null references agents (id),
  name text not null,
  chunks bytea not null,
  bytes bigint not null,
  -- What it took on the disk beyond what was there already.
  stored_bytes bigint not null,
  created_at timestamptz not null default now()
);
create index snapshots_agent on snapshots (agent_id, id desc);
create index snapshots_org on snapshots (org_id);
