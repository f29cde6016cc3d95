-- Where an organisation wants to be told of what happens.
create table webhook_endpoints (
  id uuid primary key,
  org_id uuid not null references orgs (id),
  name text not null,
  url text not null,
  -- Types of events; '*' = all.
  events text[] not null,
  -- Only of this agent; null = of all.
  agent_id uuid,
  status text not null check (status in ('enabled', 'disabled')),
  -- Null: a caller did it.
  disabled_reason text check (disabled_reason in ('failing', 'gone')),
  -- When the first attempt failed after the last one that did not; null: the last one did not.
  failing_since timestamptz,
  last_success_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index webhook_endpoints_org on webhook_endpoints (org_id, id);
create index webhook_endpoints_enabled on webhook_endpoints (org_id) where status = 'enabled';

create table webhook_endpoint_secrets (
  endpoint_id uuid not null references webhook_endpoints (id) on delete cascade,
  name text not null check (name in ('current', 'previous')),
  -- Of the one that was rotated away: until when it signs too.
  valid_until timestamptz,
  sealed_value bytea not null,
  wrapped_key bytea not null,
  kek_id text not null,
  primary key (endpoint_id, name)
);

-- The outbox. A row is written in the transaction of its event, by the trigger below. No foreign keys: a run must not fail
-- because an endpoint is deleted at the same moment; what has no endpoint is removed.
create table webhook_deliveries (
  id uuid primary key,
  endpoint_id uuid not null,
  org_id uuid not null,
  type text not null,
  agent_id uuid,
  conversation_id uuid,
  run_id uuid,
  seq bigint,
  -- The event's own data; what of it is sent is decided when it is sent.
  data json not null,
  at timestamptz not null,
  state text not null check (state in ('pending', 'delivered', 'failed')),
  attempts integer not null default 0,
  -- When the next attempt is due; null: never, or not while the endpoint is disabled.
  due_at timestamptz,
  -- An attempt is under way; should its process die, the next one is due then.
  leased_until timestamptz,
  last_status integer,
  last_error text,
  ended_at timestamptz,
  created_at timestamptz not null default now()
);
create index webhook_deliveries_list on webhook_deliveries (endpoint_id, id);
create index webhook_deliveries_due on webhook_deliveries (due_at) where due_at is not null;
create index webhook_deliveries_next on webhook_deliveries (endpoint_id, due_at) where due_at is not null;
create index webhook_deliveries_leased on webhook_deliveries (endpoint_id) where leased_until is not null;

create table webhook_attempts (
  delivery_id uuid not null references webhook_deliveries (id) on delete cascade,
  number integer not null,
  at timestamptz not null,
  latency_ms integer not null,
  -- Null: no answer came.
  status integer,
  error text,
  -- The first bytes of the answer's body.
  answer text,
  primary key (delivery_id, number)
);

-- A UUID of version 7 (RFC 9562), so that newest first is id order.
create function uuid_v7() returns uuid language sql volatile as $$
  select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid
$$;

-- Copies of events (forks, restored backups) are told to nobody: their transactions set berth.outbox to 'off'.
create function write_outbox() returns trigger language plpgsql as $$
begin
  if not exists (select 1 from webhook_endpoints where status = 'enabled')
     or current_setting('berth.outbox', true) = 'off' then
    return null;
  end if;
  insert into webhook_deliveries (id, endpoint_id, org_id, type, agent_id, conversation_id, run_id, seq, data, at, state,
      due_at)
    select uuid_v7(), e.id, c.org_id, new.type, c.agent_id, c.id, new.run_id, new.seq, new.data, new.at, 'pending', now()
      from conversations c join webhook_endpoints e on e.org_id = c.org_id
      where c.id = new.conversation_id and e.status = 'enabled' and (e.agent_id is null or e.agent_id = c.agent_id)
        and (e.events @> array[new.type] or e.events @> array['*']);
  return null;
end $$;

create trigger webhook_outbox after insert on events for each row
  when (new.type in ('run.queued', 'run.started', 'run.awaiting_input', 'run.resumed', 'run.retrying', 'run.completed',
    'run.failed', 'run.cancelled'))
  execute function write_outbox();
