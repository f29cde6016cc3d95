-- Sessions of the Agent Client Protocol. `session/new` gives an id out before there is any message: the conversation of
-- that id begins with the first prompt. What the client calls its working folder is kept, to list its sessions by it.
create table acp_sessions (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  cwd text not null,
  created_at timestamptz not null default now()
);
create index acp_sessions_agent on acp_sessions (agent_id, id desc);
create index acp_sessions_age on acp_sessions (created_at);
