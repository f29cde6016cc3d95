-- The transactions that change a run, each one function, so that each is one round trip and one commit. A lane's row
-- lock orders everything that is written to its conversation: `next_seq` under it makes the log gap-free.

create function accept_run(
  p_org uuid, p_agent uuid, p_conversation uuid, p_is_new boolean, p_title text, p_source text,
  p_key uuid, p_idempotency_key text, p_request_hash text, p_on_busy text,
  p_run uuid, p_message uuid, p_content text, p_at timestamptz,
  p_message_event text, p_queued_event text, p_max_queued integer, p_max_agents integer,
  out result text, out run uuid, out conversation uuid, out first_seq bigint, out interrupted uuid
) language plpgsql as $$
declare
  lane record;
  seen record;
begin
  run := p_run;
  conversation := p_conversation;
  if p_idempotency_key is not null then
    -- Two sends with one key at the same moment: the second waits here, and then finds what the first has written.
    perform pg_advisory_xact_lock(hashtextextended(p_key::text || ' ' || p_idempotency_key, 0));
    select i.run_id, i.request_hash, r.conversation_id into seen
      from idempotency i left join runs r on r.id = i.run_id
      where i.key_id = p_key and i.idempotency_key = p_idempotency_key;
    if found then
      if seen.run_id is null or seen.request_hash <> p_request_hash then
        result := 'idempotency_key_reused';
      else
        result := 'replayed';
        run := seen.run_id;
        conversation := seen.conversation_id;
      end if;
      return;
    end if;
  end if;

  perform 1 from agents where id = p_agent and org_id = p_org and deleted_at is null;
  if not found then
    result := 'not_found';
    return;
  end if;
  if not p_is_new then
    select l.state, l.pending, l.next_seq, l.run_id into lane
      from lanes l join conversations c on c.id = l.conversation_id
      where l.conversation_id = p_conversation and c.agent_id = p_agent and c.org_id = p_org and c.deleted_at is null
      for update of l;
    if not found then
      result := 'not_found';
      return;
    end if;
    if p_on_busy = 'reject' and lane.state <> 'idle' then
      result := 'conversation_busy';
      return;
    end if;
    if lane.pending >= p_max_queued then
      result := 'queue_full';
      return;
    end if;
  end if;
  if not exists (
    select 1 from runs where org_id = p_org and agent_id = p_agent and status in ('queued', 'running', 'awaiting_input')
  ) then
    perform 1 from (
      select distinct agent_id from runs where org_id = p_org and status in ('queued', 'running', 'awaiting_input')
    ) active offset p_max_agents - 1 limit 1;
    if found then
      result := 'too_many_sandboxes';
      return;
    end if;
  end if;

  result := 'accepted';
  if p_is_new then
    first_seq := 1;
    insert into conversations (id, org_id, agent_id, title, source, created_at)
      values (p_conversation, p_org, p_agent, p_title, p_source, p_at);
    insert into lanes (conversation_id, org_id, agent_id, state, pending, ready_at, next_seq, last_message_at)
      values (p_conversation, p_org, p_agent, 'ready', 1, p_at, 3, p_at);
  else
    first_seq := lane.next_seq;
    update lanes set
      pending = pending + 1, next_seq = next_seq + 2, last_message_at = p_at,
      ready_at = case when state = 'idle' then p_at else ready_at end,
      state = case when state = 'idle' then 'ready' else state end
      where conversation_id = p_conversation;
    if p_on_busy = 'interrupt' and lane.state = 'running' then
      update runs set cancel_requested_at = coalesce(cancel_requested_at, p_at)
        where id = lane.run_id and status in ('running', 'awaiting_input');
      interrupted := lane.run_id;
    end if;
  end if;
  insert into runs (id, org_id, agent_id, conversation_id, key_id, user_message_id, accept_seq, status, created_at)
    values (p_run, p_org, p_agent, p_conversation, p_key, p_message, first_seq, 'queued', p_at);
  insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, created_at)
    values (p_message, p_org, p_agent, p_conversation, p_run, 'user', p_content, p_at);
  insert into events (conversation_id, seq, run_id, type, data, at) values
    (p_conversation, first_seq, p_run, 'message.created', p_message_event::json, p_at),
    (p_conversation, first_seq + 1, p_run, 'run.queued', p_queued_event::json, p_at);
  if p_idempotency_key is not null then
    insert into idempotency (key_id, idempotency_key, request_hash, run_id, created_at)
      values (p_key, p_idempotency_key, p_request_hash, p_run, p_at);
  end if;
end $$;

-- Appends the events of many conversations at once. A lane that is no longer the caller's (another epoch) gets none,
-- and is missing in the answer.
create function append_events(
  p_lanes uuid[], p_epochs bigint[], p_append_nos integer[], p_counts integer[],
  p_conversations uuid[], p_ordinals integer[], p_runs uuid[], p_types text[], p_data text[], p_at timestamptz,
  p_ledger text
) returns table (conversation uuid, first_seq bigint) language plpgsql as $$
begin
  return query
    with owned as (
      update lanes l set next_seq = l.next_seq + w.count, append_no = w.append_no
        from unnest(p_lanes, p_epochs, p_append_nos, p_counts) as w (conversation_id, epoch, append_no, count)
        where l.conversation_id = w.conversation_id and l.epoch = w.epoch and l.state = 'running'
          and l.append_no < w.append_no
        returning l.conversation_id, l.next_seq - w.count as first_seq
    ), written as (
      insert into events (conversation_id, seq, run_id, type, data, at)
        select o.conversation_id, o.first_seq + e.ordinal, e.run_id, e.type, e.data::json, p_at
        from unnest(p_conversations, p_ordinals, p_runs, p_types, p_data) as e (conversation_id, ordinal, run_id, type, data)
        join owned o on o.conversation_id = e.conversation_id
    )
    select o.conversation_id, o.first_seq from owned o;
  if p_ledger is not null then
    perform record_usage(p_ledger);
  end if;
end $$;

create function record_usage(p_rows text) returns void language sql as $$
  insert into usage_ledger (id, org_id, agent_id, run_id, key_id, meter, model, quantity, unit_price, price_version, cost_micros)
    select id, org_id, agent_id, run_id, key_id, meter, model, quantity, unit_price, price_version, cost_micros
    from json_to_recordset(p_rows::json) as u (
      id uuid, org_id uuid, agent_id uuid, run_id uuid, key_id uuid, meter text, model text, quantity bigint,
      unit_price bigint, price_version text, cost_micros bigint
    )
$$;

-- The end of a run: its last events, its message, its state, and its lane free for the next. `first_seq` is null when
-- the lane is no longer the caller's; then nothing was written.
create function settle_run(
  p_conversation uuid, p_epoch bigint, p_run uuid, p_org uuid, p_agent uuid, p_status text, p_error_code text,
  p_error_text text, p_input_tokens bigint, p_output_tokens bigint, p_cost_micros bigint,
  p_message uuid, p_content text, p_types text[], p_data text[], p_at timestamptz, p_ledger text,
  out first_seq bigint, out is_ready boolean
) language plpgsql as $$
begin
  update lanes set
    next_seq = next_seq + cardinality(p_types),
    state = case when pending > 0 then 'ready' else 'idle' end,
    ready_at = case when pending > 0 then p_at end,
    run_id = null, node_id = null, lease_until = null,
    last_message_at = case when p_message is null then last_message_at else p_at end
    where conversation_id = p_conversation and epoch = p_epoch and state = 'running'
    returning next_seq - cardinality(p_types), state = 'ready' into first_seq, is_ready;
  if first_seq is null then
    return;
  end if;
  update runs set
    status = p_status, error_code = p_error_code, error_text = p_error_text, ended_at = p_at, request_id = null,
    input_tokens = p_input_tokens, output_tokens = p_output_tokens, cost_micros = p_cost_micros
    where id = p_run;
  if p_message is not null then
    insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, created_at)
      values (p_message, p_org, p_agent, p_conversation, p_run, 'assistant', p_content, p_at);
  end if;
  insert into events (conversation_id, seq, run_id, type, data, at)
    select p_conversation, first_seq + e.ordinal - 1, p_run, e.type, e.data::json, p_at
    from unnest(p_types, p_data) with ordinality as e (type, data, ordinal);
  if p_ledger is not null then
    perform record_usage(p_ledger);
  end if;
end $$;

-- Cancels a run that has not started. `result`: cancelled, or the status that it has instead; null when there is none.
create function cancel_queued_run(
  p_conversation uuid, p_run uuid, p_event text, p_at timestamptz, out result text, out seq bigint
) language plpgsql as $$
begin
  perform 1 from lanes where conversation_id = p_conversation for update;
  select status into result from runs where id = p_run for update;
  if result is distinct from 'queued' then
    return;
  end if;
  update runs set status = 'cancelled', cancel_requested_at = p_at, ended_at = p_at where id = p_run;
  update lanes set
    pending = pending - 1, next_seq = next_seq + 1,
    state = case when state = 'ready' and pending = 1 then 'idle' else state end,
    ready_at = case when state = 'ready' and pending = 1 then null else ready_at end
    where conversation_id = p_conversation
    returning next_seq - 1 into seq;
  insert into events (conversation_id, seq, run_id, type, data, at)
    values (p_conversation, seq, p_run, 'run.cancelled', p_event::json, p_at);
  result := 'cancelled';
end $$;

-- Hands ready lanes, and lanes whose owner's lease ran out, to a node. Of a ready lane the oldest queued run starts; of a
-- lost one the same run is given out again under a new epoch (`is_takeover`), its start told by the caller's events.
-- p_lanes null = any lane.
create function claim_lanes(
  p_node uuid, p_lease_ms integer, p_node_dead_ms integer, p_lanes uuid[], p_max integer, p_at timestamptz
) returns table (
  conversation uuid, epoch bigint, run uuid, org uuid, agent uuid, key uuid, attempt integer, deployment uuid,
  content text, start_seq bigint, is_takeover boolean, cancel_requested boolean, started_at timestamptz,
  created_at timestamptz
) language plpgsql as $$
begin
  return query
    with candidate as (
      select l.conversation_id, l.agent_id, l.epoch, l.state = 'running' as taken_over, l.run_id, l.next_seq, a.deployment_id
        from lanes l
        join agents a on a.id = l.agent_id
        left join nodes n on n.id = a.node_id
        where ((l.state = 'ready') or (l.state = 'running' and l.lease_until < now()))
          and (p_lanes is null or l.conversation_id = any (p_lanes))
          and (a.node_id is null or a.node_id = p_node or n.id is null
               or n.seen_at < now() - p_node_dead_ms * interval '1 millisecond')
        order by l.state = 'running' desc, l.ready_at
        limit p_max
        for update of l skip locked
    ), head as (
      select c.*, r.id as head_run, r.user_message_id, r.key_id, r.org_id, r.attempt as tried,
             coalesce(r.deployment_id, c.deployment_id) as bound_deployment, r.cancel_requested_at, r.created_at
        from candidate c
        cross join lateral (
          select * from runs q where c.taken_over and q.id = c.run_id
          union all
          (select * from runs q where not c.taken_over and q.conversation_id = c.conversation_id and q.status = 'queued'
             order by q.accept_seq limit 1)
        ) r
    ), owned as (
      update lanes l set
        state = 'running', run_id = h.head_run, node_id = p_node, epoch = l.epoch + 1, append_no = 0,
        lease_until = now() + p_lease_ms * interval '1 millisecond',
        pending = l.pending - case when h.taken_over then 0 else 1 end,
        next_seq = l.next_seq + case when h.taken_over then 0 else 1 end
        from head h where l.conversation_id = h.conversation_id
        returning l.conversation_id, l.epoch
    ), begun as (
      update runs r set
        status = 'running', attempt = r.attempt + 1, deployment_id = h.bound_deployment, request_id = null,
        response_option = null, started_at = coalesce(r.started_at, p_at)
        from head h where r.id = h.head_run
        returning r.id, r.attempt, r.started_at
    ), told as (
      insert into events (conversation_id, seq, run_id, type, data, at)
        select h.conversation_id, h.next_seq, h.head_run, 'run.started',
               json_build_object('runId', h.head_run, 'attempt', h.tried + 1, 'deploymentId', h.bound_deployment), p_at
        from head h where not h.taken_over
    ), homed as (
      update agents a set node_id = p_node from head h where a.id = h.agent_id and a.node_id is distinct from p_node
    )
    select h.conversation_id, o.epoch, h.head_run, h.org_id, h.agent_id, h.key_id, b.attempt, h.bound_deployment,
           m.content, h.next_seq, h.taken_over, h.cancel_requested_at is not null, b.started_at, h.created_at
      from head h
      join owned o on o.conversation_id = h.conversation_id
      join begun b on b.id = h.head_run
      join messages m on m.id = h.user_message_id;
end $$;
