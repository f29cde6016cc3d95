-- What an agent may reach on the network, as its owner wrote it. An agent without a row has the installation's default.
create table egress_policies (
  agent_id uuid primary key references agents (id),
  mode text not null check (mode in ('none', 'list', 'open')),
  allow text[] not null,
  deny text[] not null,
  presets text[] not null,
  transparent boolean not null,
  updated_at timestamptz not null default now()
);

-- Connections that did not go out, one row for each kind. The oldest of an agent go when there are too many.
create table egress_refusals (
  id uuid primary key,
  agent_id uuid not null,
  host text not null,
  port integer not null,
  reason text not null,
  message text not null,
  count bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  unique (agent_id, host, port, reason)
) with (fillfactor = 70);

-- Bytes that passed, by host and day (UTC). Out of the sandbox is sent.
create table egress_traffic (
  agent_id uuid not null,
  day date not null,
  host text not null,
  sent_bytes bigint not null,
  received_bytes bigint not null,
  connections bigint not null,
  primary key (agent_id, day, host)
) with (fillfactor = 70);
