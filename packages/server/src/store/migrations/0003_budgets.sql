-- Caps on what an organisation, or one of its agents, spends in a calendar day or month (UTC).
create table budgets (
  -- An organisation or an agent.
  owner_id uuid primary key,
  org_id uuid not null references orgs (id),
  period text not null check (period in ('day', 'month')),
  limit_micros bigint not null check (limit_micros >= 0),
  on_exceeded text not null check (on_exceeded in ('reject')),
  updated_at timestamptz not null default now()
);

-- The ledger's costs, summed for each organisation and each agent by day: written with the ledger, never without it. The
-- sum of a period is the sum of its days.
create table spending (
  owner_id uuid not null,
  day date not null,
  cost_micros bigint not null,
  primary key (owner_id, day)
) with (fillfactor = 70);

insert into spending (owner_id, day, cost_micros)
  select owner_id, (at at time zone 'UTC')::date, sum(cost_micros)::bigint
    from usage_ledger cross join lateral (values (org_id), (agent_id)) as owner (owner_id)
    where cost_micros <> 0 group by 1, 2;

-- What model calls that are under way may cost. Losing it, with the database server, lets at most those calls pass uncounted.
create unlogged table budget_reservations (
  id uuid primary key,
  org_id uuid not null,
  agent_id uuid not null,
  node_id uuid not null,
  cost_micros bigint not null,
  -- For reservations whose process is gone.
  expires_at timestamptz not null
);
create index budget_reservations_owner on budget_reservations (org_id, agent_id);

-- The budgets of these owners, with what is spent and set aside in their present period.
create function budgets_of(p_owners uuid[], p_at timestamptz) returns table (
  owner_id uuid, period text, limit_micros bigint, on_exceeded text, spent_micros bigint, reserved_micros bigint
) language sql stable as $$
  select b.owner_id, b.period, b.limit_micros, b.on_exceeded,
    (select coalesce(sum(s.cost_micros), 0)::bigint from spending s
      where s.owner_id = b.owner_id
        and s.day between date_trunc(b.period, p_at at time zone 'UTC')::date and (p_at at time zone 'UTC')::date),
    (select coalesce(sum(r.cost_micros), 0)::bigint from budget_reservations r
      where r.org_id = b.org_id and (b.owner_id = b.org_id or r.agent_id = b.owner_id) and r.expires_at > p_at)
  from budgets b where b.owner_id = any (p_owners)
$$;

-- Sets aside what a call may cost, unless a budget is used up. A call is let in while anything is left that is not set
-- aside, so that only the last one let in can pass the limit. `outcome`: none (there is no budget), reserved, waiting (the
-- rest is set aside for calls under way) or used_up; with the latter two the budget that says so.
create function reserve_budget(
  p_id uuid, p_org uuid, p_agent uuid, p_node uuid, p_cost_micros bigint, p_at timestamptz, p_expires_at timestamptz,
  out outcome text, out owner_id uuid, out period text, out limit_micros bigint
) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  full_one record;
begin
  -- A reservation need not outlive the database server, so no call waits for the disk.
  perform set_config('synchronous_commit', 'off', true);
  -- The lock puts the calls of a budget in a row: each sees what those before it have set aside.
  perform 1 from budgets b where b.owner_id in (p_org, p_agent) order by b.owner_id for no key update;
  if not found then
    outcome := 'none';
    return;
  end if;
  delete from budget_reservations where id in (
    select r.id from budget_reservations r where r.org_id = p_org and r.expires_at <= p_at for update skip locked);
  select b.*, b.spent_micros >= b.limit_micros as is_spent into full_one from budgets_of(array[p_org, p_agent], p_at) b
    where b.spent_micros + b.reserved_micros >= b.limit_micros order by is_spent desc, b.owner_id = p_org limit 1;
  if found then
    outcome := case when full_one.is_spent then 'used_up' else 'waiting' end;
    owner_id := full_one.owner_id;
    period := full_one.period;
    limit_micros := full_one.limit_micros;
    return;
  end if;
  insert into budget_reservations (id, org_id, agent_id, node_id, cost_micros, expires_at)
    values (p_id, p_org, p_agent, p_node, p_cost_micros, p_expires_at);
  outcome := 'reserved';
end $$;

-- Ledger rows and, with them, the sums of their runs and of their owners' days, and the end of the reservations that
-- were made for them. A row that is there already changes nothing.
create function record_usage(p_rows text) returns void language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  added usage_ledger[];
  total record;
begin
  with inserted as (
    insert into usage_ledger as l
      (id, org_id, agent_id, run_id, key_id, meter, model, quantity, unit_price, price_version, cost_micros, at)
      select id, org_id, agent_id, run_id, key_id, meter, model, quantity, unit_price, price_version, cost_micros, at
        from json_to_recordset(p_rows::json) as u (
          id uuid, org_id uuid, agent_id uuid, run_id uuid, key_id uuid, meter text, model text, quantity bigint,
          unit_price bigint, price_version text, cost_micros bigint, at timestamptz)
      on conflict (id) do nothing
      returning l as entry
  )
  select array_agg(entry) into added from inserted;
  -- Mostly there is none, and a statement that is not made costs nothing.
  if p_rows like '%"reservation_id":"%' then
    delete from budget_reservations where id = any (array(
      select (u ->> 'reservation_id')::uuid from json_array_elements(p_rows::json) u));
  end if;
  if exists (select 1 from unnest(added) a where a.cost_micros <> 0) then
    -- In order, so that two writers cannot wait for each other.
    insert into spending as s (owner_id, day, cost_micros)
      select owner_id, (a.at at time zone 'UTC')::date as day, sum(a.cost_micros)::bigint
        from unnest(added) a cross join lateral (values (a.org_id), (a.agent_id)) as owner (owner_id)
        where a.cost_micros <> 0 group by 1, 2 order by 1, 2
      on conflict (owner_id, day) do update set cost_micros = s.cost_micros + excluded.cost_micros;
  end if;
  -- Each run by its key: joined, the kept plan reads all runs there are, since it takes the rows given for a hundred.
  for total in
    select a.run_id, sum(a.cost_micros) as cost_micros,
           coalesce(sum(a.quantity) filter (where a.meter in ('model.input_tokens', 'model.cached_input_tokens')), 0) as inputs,
           coalesce(sum(a.quantity) filter (where a.meter = 'model.output_tokens'), 0) as outputs
      from unnest(added) a where a.run_id is not null group by a.run_id order by a.run_id
  loop
    update runs r set input_tokens = r.input_tokens + total.inputs, output_tokens = r.output_tokens + total.outputs,
      cost_micros = r.cost_micros + total.cost_micros
      where r.id = total.run_id;
  end loop;
end $$;
