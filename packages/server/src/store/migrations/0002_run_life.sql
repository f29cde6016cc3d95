-- The transactions that change a run. Each is one function: one round trip, one commit, and inside it every statement
-- sees what is committed when it begins, which a single large statement would not. The row lock of the lane comes first
-- everywhere: it orders all that is written to a conversation, so `next_seq` under it numbers the log without a gap.
-- Plans are made once and kept: making them anew for each call, which arrays as arguments lead to, costs more than all
-- else. Sequential scans are off because the plans are kept while the tables grow from nothing.

create function run_usage_json(r runs) returns text language sql immutable as $$
  select format('{"inputTokens":%s,"outputTokens":%s,"cost":"%s.%s"}', r.input_tokens, r.output_tokens,
    r.cost_micros / 1000000, lpad((r.cost_micros % 1000000)::text, 6, '0'))
$$;

-- Appends one event of a run; its lane is locked by the caller.
create function append_event(p_conversation uuid, p_run uuid, p_type text, p_data text, p_at timestamptz)
returns setof events language sql as $$
  with lane as (
    update lanes set next_seq = next_seq + 1 where conversation_id = p_conversation returning next_seq - 1 as seq
  )
  insert into events (conversation_id, seq, run_id, type, data, at)
    select p_conversation, lane.seq, p_run, p_type, p_data::json, p_at from lane
  returning *
$$;

-- Ends the calls of tools that the present attempt of a run has left open: whether they happened, nobody knows any more.
-- The lane is locked by the caller. Answers with the events.
create function close_tools(p_conversation uuid, p_run uuid, p_at timestamptz)
returns setof events language plpgsql set enable_seqscan = off as $$
declare
  call record;
begin
  for call in
    select last.data from (
      select distinct on (e.data ->> 'toolCallId') e.type, e.data, e.seq from events e
      where e.conversation_id = p_conversation and e.run_id = p_run
        and e.type in ('tool.started', 'tool.updated', 'tool.finished')
        and e.seq > (select max(s.seq) from events s
          where s.conversation_id = p_conversation and s.run_id = p_run and s.type = 'run.started')
      order by e.data ->> 'toolCallId', e.seq desc
    ) last
    where last.type <> 'tool.finished' order by last.seq
  loop
    return query select * from append_event(p_conversation, p_run, 'tool.finished',
      (call.data::jsonb || '{"status": "unknown"}')::text, p_at);
  end loop;
end $$;

-- Cancels runs of a conversation that nobody executes: queued ones, and one that waits for its next attempt. p_run null =
-- all of them. The lane is locked by the caller. Answers with the events.
create function cancel_waiting(p_conversation uuid, p_run uuid, p_at timestamptz)
returns setof events language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  lane lanes;
  ended runs;
begin
  select * into lane from lanes where conversation_id = p_conversation;
  for ended in
    update runs set status = 'cancelled', ended_at = p_at, cancel_requested_at = coalesce(cancel_requested_at, p_at)
    where conversation_id = p_conversation and (p_run is null or id = p_run)
      and (status = 'queued' or (lane.state = 'ready' and id = lane.run_id and status in ('running', 'awaiting_input')))
    returning *
  loop
    if ended.id = lane.run_id then
      update lanes set run_id = null where conversation_id = p_conversation;
    else
      update lanes set pending = pending - 1 where conversation_id = p_conversation;
    end if;
    return query select * from append_event(p_conversation, ended.id, 'run.cancelled',
      '{"runId":"' || ended.id || '","usage":' || run_usage_json(ended) || '}', p_at);
  end loop;
  update lanes set state = 'idle', ready_at = null
    where conversation_id = p_conversation and state = 'ready' and pending = 0 and run_id is null;
end $$;

-- Accept: the message, the queued run and their events. `outcome` is accepted, replayed, or the code of a refusal.
-- With p_node, a node that has room for a run, the claim is made along when nothing else waits in the lane and the agent
-- is at home there: one commit less before the run begins. `claimed` says so; the row is then what claim_lanes gives.
-- p_ready: see claim_lanes.
create function accept_run(
  p_org uuid, p_key uuid, p_agent uuid, p_conversation uuid, p_is_new boolean, p_title text, p_source text,
  p_on_busy text, p_idempotency_key text, p_request_hash text, p_run uuid, p_message uuid, p_content text,
  p_message_event text, p_queued_event text, p_at timestamptz, p_max_queued integer, p_max_agents integer,
  p_node uuid, p_answer uuid, p_timeout_ms bigint, p_ready text[], p_extras text, p_extras_text text,
  out outcome text, out run_id uuid, out conversation_id uuid, out first_seq bigint, out running_run_id uuid,
  out cancelled json, out claimed boolean, out epoch bigint, out deployment_id uuid, out slot integer, out model text,
  out generation integer, out commit text, out manifest jsonb, out waits boolean
) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  lane lanes;
  seen record;
  active integer;
  home record;
begin
  run_id := p_run;
  conversation_id := p_conversation;
  claimed := false;
  perform 1 from agents where id = p_agent and org_id = p_org and deleted_at is null;
  if not found then
    outcome := 'not_found';
    return;
  end if;

  if p_idempotency_key is not null then
    -- Of two sends with one key at the same moment, the second waits here for the first one's commit.
    insert into idempotency as i (key_id, idempotency_key, request_hash, run_id, created_at)
      values (p_key, p_idempotency_key, p_request_hash, p_run, now())
      on conflict (key_id, idempotency_key) do update
        set request_hash = excluded.request_hash, run_id = excluded.run_id, created_at = excluded.created_at,
            status = null, headers = null, sealed_body = null, wrapped_key = null, kek_id = null
        where i.created_at < now() - interval '24 hours'
      returning i.run_id into seen;
    if not found then
      select i.run_id, i.request_hash, r.conversation_id into seen
        from idempotency i left join runs r on r.id = i.run_id
        where i.key_id = p_key and i.idempotency_key = p_idempotency_key;
      if seen.run_id is not null and seen.request_hash = p_request_hash then
        outcome := 'replayed';
        run_id := seen.run_id;
        conversation_id := seen.conversation_id;
      else
        outcome := 'idempotency_key_reused';
      end if;
      return;
    end if;
  end if;

  outcome := 'accepted';
  if not p_is_new then
    select * into lane from lanes l where l.conversation_id = p_conversation and l.agent_id = p_agent for update;
    -- A look of its own, after the lock: what was deleted while we waited for it must be seen.
    if lane.conversation_id is null
       or not exists (select 1 from conversations where id = p_conversation and deleted_at is null) then
      outcome := 'not_found';
    elsif p_on_busy = 'reject' and lane.state <> 'idle' then
      outcome := 'conversation_busy';
    elsif p_on_busy <> 'interrupt' and lane.pending >= p_max_queued then
      outcome := 'queue_full';
    end if;
  end if;

  if outcome = 'accepted' and not exists (
    select 1 from runs where org_id = p_org and agent_id = p_agent and status in ('queued', 'running', 'awaiting_input')
  ) then
    select count(*) into active from (
      select distinct agent_id from runs where org_id = p_org and status in ('queued', 'running', 'awaiting_input')
    ) a;
    if active >= p_max_agents - 16 then
      -- Close to the limit one after another, so that sends at the same moment cannot pass it together.
      perform pg_advisory_xact_lock(hashtextextended('active agents of ' || p_org, 0));
      select count(*) into active from (
        select distinct agent_id from runs where org_id = p_org and status in ('queued', 'running', 'awaiting_input')
      ) a;
      if active >= p_max_agents then
        outcome := 'too_many_sandboxes';
      end if;
    end if;
  end if;

  -- Budgets are in 0003_budgets.sql. Most agents have none, and then this one look is all that it costs.
  if outcome = 'accepted' and exists (select 1 from budgets where owner_id in (p_org, p_agent)) then
    if exists (select 1 from budgets_of(array[p_org, p_agent], p_at) where spent_micros >= limit_micros) then
      outcome := 'budget_exceeded';
    end if;
  end if;

  if outcome <> 'accepted' then
    if p_idempotency_key is not null then
      delete from idempotency where key_id = p_key and idempotency_key = p_idempotency_key;
    end if;
    return;
  end if;

  if p_node is not null and (p_is_new or lane.state = 'idle') then
    -- Looked at now and not before: what was deployed while we waited for the lane counts.
    select a.slot, a.model, a.generation, a.node_id, a.deployment_id, d.commit, d.manifest into home
      from agents a left join deployments d on d.id = a.deployment_id where a.id = p_agent;
    if home.node_id is null then
      update agents set node_id = p_node where id = p_agent and node_id is null;
      claimed := found;
    else
      claimed := home.node_id = p_node;
    end if;
  end if;

  if claimed then
    slot := home.slot;
    model := home.model;
    generation := home.generation;
    deployment_id := home.deployment_id;
    commit := home.commit;
    manifest := home.manifest;
    waits := (concat_ws(' ', p_agent, home.deployment_id, home.generation) = any (p_ready)) is not true;
    if p_is_new then
      first_seq := 1;
      epoch := 1;
      insert into conversations (id, org_id, agent_id, title, source, created_at)
        values (p_conversation, p_org, p_agent, p_title, p_source, p_at);
      insert into lanes (conversation_id, org_id, agent_id, state, run_id, node_id, epoch, waits, next_seq, last_message_at)
        values (p_conversation, p_org, p_agent, 'running', p_run, p_node, epoch, waits, 4, p_at);
    else
      update lanes l set
        state = 'running', run_id = p_run, node_id = p_node, epoch = l.epoch + 1, write_no = 0, told = 0, waits = accept_run.waits,
        ready_at = null, next_seq = l.next_seq + 3, last_message_at = p_at
        where l.conversation_id = p_conversation
        returning l.next_seq - 3, l.epoch into first_seq, epoch;
    end if;
    insert into runs (id, org_id, agent_id, conversation_id, key_id, user_message_id, accept_seq, status, created_at,
        attempt, message_id, deployment_id, started_at, deadline_at)
      values (p_run, p_org, p_agent, p_conversation, p_key, p_message, first_seq, 'running', p_at,
        1, p_answer, deployment_id, p_at, p_at + p_timeout_ms * interval '1 millisecond');
    insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, source, extras, extras_text, created_at)
      values (p_message, p_org, p_agent, p_conversation, p_run, 'user', p_content, p_source, p_extras::json, p_extras_text, p_at);
    insert into events (conversation_id, seq, run_id, type, data, at) values
      (p_conversation, first_seq, p_run, 'message.created', p_message_event::json, p_at),
      (p_conversation, first_seq + 1, p_run, 'run.queued', p_queued_event::json, p_at),
      (p_conversation, first_seq + 2, p_run, 'run.started', ('{"runId":"' || p_run || '","attempt":1,"deploymentId":'
        || coalesce('"' || deployment_id || '"', 'null') || '}')::json, p_at);
    return;
  end if;

  if p_is_new then
    first_seq := 1;
    insert into conversations (id, org_id, agent_id, title, source, created_at)
      values (p_conversation, p_org, p_agent, p_title, p_source, p_at);
    insert into lanes (conversation_id, org_id, agent_id, state, pending, ready_at, next_seq, last_message_at)
      values (p_conversation, p_org, p_agent, 'ready', 1, now(), 3, p_at);
  else
    if p_on_busy = 'interrupt' and lane.state <> 'idle' then
      select json_agg(json_build_object('seq', e.seq, 'runId', e.run_id, 'data', e.data) order by e.seq) into cancelled
        from cancel_waiting(p_conversation, null, p_at) e;
      if lane.state = 'running' then
        update runs set cancel_requested_at = coalesce(cancel_requested_at, p_at) where id = lane.run_id;
        running_run_id := lane.run_id;
      end if;
    end if;
    update lanes l set
      pending = pending + 1, next_seq = next_seq + 2, last_message_at = p_at,
      ready_at = case when state = 'idle' then now() else ready_at end,
      state = case when state = 'idle' then 'ready' else state end
      where l.conversation_id = p_conversation
      returning l.next_seq - 2 into first_seq;
  end if;
  insert into runs (id, org_id, agent_id, conversation_id, key_id, user_message_id, accept_seq, status, created_at)
    values (p_run, p_org, p_agent, p_conversation, p_key, p_message, first_seq, 'queued', p_at);
  insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, source, extras, extras_text, created_at)
    values (p_message, p_org, p_agent, p_conversation, p_run, 'user', p_content, p_source, p_extras::json, p_extras_text, p_at);
  insert into events (conversation_id, seq, run_id, type, data, at) values
    (p_conversation, first_seq, p_run, 'message.created', p_message_event::json, p_at),
    (p_conversation, first_seq + 1, p_run, 'run.queued', p_queued_event::json, p_at);
end $$;

-- Claim: gives ready lanes to a node, oldest first, at most one run of each: the interrupted one, else the next queued.
-- p_wanted null = any lane. p_messages are new ids, as many as p_max. An agent stays with the node that holds its sandbox.
-- p_ready are the sandboxes in which a turn begins at once, each as `<agent> <deployment> <generation>`; every other turn
-- has to wait for one. No attempt is delayed for a minute: what is ready later than that was noted by a clock that has been
-- set back since, and would wait until that time comes again.
create function claim_lanes(
  p_node uuid, p_wanted uuid[], p_max integer, p_messages uuid[], p_at timestamptz, p_timeout_ms bigint, p_ready text[]
) returns table (
  conversation_id uuid, epoch bigint, run_id uuid, org_id uuid, agent_id uuid, key_id uuid, attempt integer,
  deployment_id uuid, message_id uuid, content text, seq bigint, deadline_at timestamptz, started_at timestamptz,
  created_at timestamptz, input_tokens bigint, output_tokens bigint, cost_micros bigint, slot integer, model text,
  generation integer, commit text, manifest jsonb, source text, has_extras boolean, waits boolean
) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  picked uuid[];
  homeless uuid[];
begin
  -- First the locks, then a look at what the locks made certain.
  if p_wanted is null then
    select array_agg(c.conversation_id), array_agg(c.agent_id) filter (where c.node_id is null) into picked, homeless from (
      select l.conversation_id, l.agent_id, a.node_id from lanes l join agents a on a.id = l.agent_id
        where l.state = 'ready' and not (l.ready_at > now() and l.ready_at < now() + interval '1 minute') and (a.node_id is null or a.node_id = p_node)
        order by l.ready_at limit p_max for update of l skip locked) c;
  else
    select array_agg(c.conversation_id), array_agg(c.agent_id) filter (where c.node_id is null) into picked, homeless from (
      select l.conversation_id, l.agent_id, a.node_id from lanes l join agents a on a.id = l.agent_id
        -- Not `= 'ready'`: the plan would look through all ready lanes instead of looking these up.
        where l.conversation_id = any (p_wanted) and l.state not in ('idle', 'running')
          and not (l.ready_at > now() and l.ready_at < now() + interval '1 minute')
          and (a.node_id is null or a.node_id = p_node)
        order by l.ready_at limit p_max for update of l skip locked) c;
  end if;
  if picked is null then
    return;
  end if;
  if homeless is not null then
    update agents set node_id = p_node where id = any (homeless) and node_id is null;
    select array_agg(l.conversation_id) into picked
      from lanes l join agents a on a.id = l.agent_id where l.conversation_id = any (picked) and a.node_id = p_node;
  end if;
  return query
    with head as (
      select l.conversation_id, l.run_id is not null as is_retry, row_number() over (order by l.ready_at) as n,
             coalesce(l.run_id, (
               select q.id from runs q where q.conversation_id = l.conversation_id and q.status = 'queued'
               order by q.accept_seq limit 1)) as run_id
        from lanes l where l.conversation_id = any (picked)
    ), begun as (
      update runs r set
        status = 'running', attempt = r.attempt + 1, message_id = p_messages[h.n],
        deployment_id = coalesce(r.deployment_id, a.deployment_id), started_at = coalesce(r.started_at, p_at),
        deadline_at = coalesce(r.deadline_at, p_at + p_timeout_ms * interval '1 millisecond')
        from head h, agents a where r.id = h.run_id and a.id = r.agent_id
        returning r.*, h.is_retry, a.slot, a.model, a.generation,
          h.is_retry or concat_ws(' ', r.agent_id, r.deployment_id, a.generation) <> all (p_ready) as waits
    ), owned as (
      update lanes l set
        state = 'running', run_id = b.id, node_id = p_node, epoch = l.epoch + 1, write_no = 0, told = 0, waits = b.waits,
        next_seq = l.next_seq + 1, ready_at = null, pending = l.pending - case when b.is_retry then 0 else 1 end
        from begun b where l.conversation_id = b.conversation_id
        returning l.conversation_id, l.epoch, l.next_seq - 1 as seq
    ), told as (
      insert into events (conversation_id, seq, run_id, type, data, at)
        select o.conversation_id, o.seq, b.id, 'run.started',
               ('{"runId":"' || b.id || '","attempt":' || b.attempt || ',"deploymentId":'
                 || coalesce('"' || b.deployment_id || '"', 'null') || '}')::json, p_at
          from owned o join begun b on b.conversation_id = o.conversation_id
    )
    select b.conversation_id, o.epoch, b.id, b.org_id, b.agent_id, b.key_id, b.attempt, b.deployment_id, b.message_id,
           m.content, o.seq, b.deadline_at, b.started_at, b.created_at, b.input_tokens, b.output_tokens, b.cost_micros,
           b.slot, b.model, b.generation, d.commit, d.manifest, m.source, m.extras is not null, b.waits
      from begun b
      join owned o on o.conversation_id = b.conversation_id
      join messages m on m.id = b.user_message_id
      left join deployments d on d.id = b.deployment_id;
end $$;

-- Append and settle, for many lanes at once, by their owner. Each p_conversations entry is a lane with the run that its
-- owner executes; p_statuses null = the run goes on as it is; a terminal status settles it and frees the lane. A lane
-- whose epoch is another one, or that has had this write, is missing in the answer and nothing of it is written.
create function write_runs(
  p_at timestamptz, p_conversations uuid[], p_epochs bigint[], p_write_nos integer[], p_counts integer[], p_runs uuid[],
  p_statuses text[], p_error_codes text[], p_error_texts text[], p_messages uuid[], p_contents text[],
  p_message_ats timestamptz[], p_event_lanes uuid[], p_event_offsets integer[], p_event_types text[], p_event_data text[], p_ledger text,
  p_told bigint[], p_artifacts text[]
) returns table (conversation_id uuid, first_seq bigint, is_ready boolean)
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  if p_ledger is not null then
    -- The lanes first here too: the sums of a run lock its row, and who asks it to stop holds its lane already.
    perform 1 from lanes l where l.conversation_id = any (p_conversations) order by l.conversation_id for update;
    perform record_usage(p_ledger);
  end if;
  return query
    with batch as (
      select *, status in ('completed', 'failed', 'cancelled') as settles
        from unnest(p_conversations, p_epochs, p_write_nos, p_counts, p_runs, p_statuses, p_error_codes, p_error_texts,
                    p_messages, p_contents, p_message_ats, p_told, p_artifacts)
          as b (conversation_id, epoch, write_no, count, run_id, status, error_code, error_text, message_id, content,
                message_at, told, artifact_ids)
    ), lane as (
      update lanes l set
        next_seq = l.next_seq + b.count, write_no = b.write_no, told = greatest(l.told, b.told),
        state = case when not coalesce(b.settles, false) then 'running' when l.pending > 0 then 'ready' else 'idle' end,
        ready_at = case when b.settles and l.pending > 0 then now() end,
        run_id = case when b.settles then null else l.run_id end,
        node_id = case when b.settles then null else l.node_id end,
        last_message_at = case when b.status = 'completed' then p_at else l.last_message_at end
        from batch b
        -- Said twice, and the state in a roundabout way, so that the kept plan looks up just these lanes by their key: the
        -- index of running lanes looks smaller to the planner, and would be read whole by each write.
        where l.conversation_id = any (p_conversations) and l.conversation_id = b.conversation_id
          and l.epoch = b.epoch and l.state not in ('idle', 'ready') and l.write_no < b.write_no
        returning l.conversation_id, l.org_id, l.agent_id, l.next_seq - b.count as first_seq, l.state = 'ready' as is_ready
    ), run as (
      update runs r set
        status = b.status, error_code = b.error_code, error_text = b.error_text,
        ended_at = case when b.settles then p_at end
        from batch b join lane l on l.conversation_id = b.conversation_id
        where r.id = b.run_id and b.status is not null
    ), message as (
      insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, artifact_ids, created_at)
        select b.message_id, l.org_id, l.agent_id, b.conversation_id, b.run_id, 'assistant', b.content,
               b.artifact_ids::json, b.message_at
          from batch b join lane l on l.conversation_id = b.conversation_id where b.status = 'completed'
    ), event as (
      insert into events (conversation_id, seq, run_id, type, data, at)
        select l.conversation_id, l.first_seq + e.place, b.run_id, e.type, e.data::json, p_at
          from unnest(p_event_lanes, p_event_offsets, p_event_types, p_event_data) as e (lane, place, type, data)
          join lane l on l.conversation_id = e.lane
          join batch b on b.conversation_id = e.lane
    )
    select l.conversation_id, l.first_seq, l.is_ready from lane l;
end $$;

-- The same for one lane, which is what a process writes that is not busy: plain statements begin and end in a fraction of
-- the time of those above. `first_seq` null = the lane's epoch is another one, or it has had this write.
create function write_run(
  p_at timestamptz, p_conversation uuid, p_epoch bigint, p_write_no integer, p_run uuid, p_status text,
  p_error_code text, p_error_text text, p_message uuid, p_content text, p_message_at timestamptz,
  p_event_types text[], p_event_data text[], p_ledger text, p_told bigint, p_artifacts text,
  out first_seq bigint, out is_ready boolean
) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  lane record;
  count integer := cardinality(p_event_types);
  settles boolean := p_status in ('completed', 'failed', 'cancelled');
begin
  if p_ledger is not null then
    -- The lane first, as in write_runs.
    perform 1 from lanes l where l.conversation_id = p_conversation for update;
    perform record_usage(p_ledger);
  end if;
  if settles then
    update lanes l set
      next_seq = l.next_seq + count, write_no = p_write_no, run_id = null, node_id = null,
      state = case when l.pending > 0 then 'ready' else 'idle' end,
      ready_at = case when l.pending > 0 then now() end,
      last_message_at = case when p_status = 'completed' then p_at else l.last_message_at end
      -- The state in a roundabout way for the kept plan's sake, as in write_runs.
      where l.conversation_id = p_conversation
        and l.epoch = p_epoch and l.state not in ('idle', 'ready') and l.write_no < p_write_no
      returning l.org_id, l.agent_id, l.next_seq - count as first_seq, l.state = 'ready' as is_ready into lane;
  else
    update lanes l set next_seq = l.next_seq + count, write_no = p_write_no, told = greatest(l.told, p_told)
      where l.conversation_id = p_conversation
        and l.epoch = p_epoch and l.state not in ('idle', 'ready') and l.write_no < p_write_no
      returning l.org_id, l.agent_id, l.next_seq - count as first_seq, false as is_ready into lane;
  end if;
  if not found then
    return;
  end if;
  first_seq := lane.first_seq;
  is_ready := lane.is_ready;
  if p_status is not null then
    update runs set status = p_status, error_code = p_error_code, error_text = p_error_text,
      ended_at = case when settles then p_at end
      where id = p_run;
  end if;
  if p_status = 'completed' then
    insert into messages (id, org_id, agent_id, conversation_id, run_id, role, content, artifact_ids, created_at)
      values (p_message, lane.org_id, lane.agent_id, p_conversation, p_run, 'assistant', p_content, p_artifacts::json,
        p_message_at);
  end if;
  if count = 1 then
    insert into events (conversation_id, seq, run_id, type, data, at)
      values (p_conversation, first_seq, p_run, p_event_types[1], p_event_data[1]::json, p_at);
  elsif count > 1 then
    insert into events (conversation_id, seq, run_id, type, data, at)
      select p_conversation, first_seq + e.place - 1, p_run, e.type, e.data::json, p_at
        from unnest(p_event_types, p_event_data) with ordinality as e (type, data, place);
  end if;
end $$;

-- Ends the present attempt of a run whose owner is gone or gives it up: the run waits for its next attempt before
-- everything that is queued, or fails after the last one, or is cancelled when somebody asked for that. p_epoch null =
-- whatever it is. p_max_attempts null = without limit. An attempt that still waited for its sandbox does not count, unless
-- p_counts; nor one that may be tried without limit. Answers with the events, the last of which says what became of it.
create function end_attempt(
  p_conversation uuid, p_epoch bigint, p_reason text, p_max_attempts integer, p_error_code text, p_error_text text,
  p_delay_ms integer, p_counts boolean, p_at timestamptz
) returns setof events language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  lane lanes;
  r runs;
  is_free boolean;
begin
  select * into lane from lanes
    where conversation_id = p_conversation and state = 'running' and (p_epoch is null or epoch = p_epoch) for update;
  if not found then
    return;
  end if;
  select * into r from runs where id = lane.run_id;
  delete from questions where run_id = r.id and resolved_at is null;
  return query select * from close_tools(p_conversation, r.id, p_at);
  is_free := p_max_attempts is null or (lane.waits and not p_counts);
  if r.cancel_requested_at is null and (is_free or r.attempt - r.uncounted < p_max_attempts) then
    update runs set status = 'running', uncounted = uncounted + is_free::integer
      where id = r.id and (status <> 'running' or is_free);
    update lanes set state = 'ready', node_id = null, epoch = epoch + 1,
      ready_at = now() + p_delay_ms * interval '1 millisecond' where conversation_id = p_conversation;
    return query select * from append_event(p_conversation, r.id, 'run.retrying', json_build_object(
      'runId', r.id, 'attempt', r.attempt + 1, 'reason', p_reason, 'discardedMessageId', r.message_id)::text, p_at);
    return;
  end if;
  update lanes set state = case when pending > 0 then 'ready' else 'idle' end, node_id = null, run_id = null,
    epoch = epoch + 1, ready_at = case when pending > 0 then now() end where conversation_id = p_conversation;
  if r.cancel_requested_at is not null then
    update runs set status = 'cancelled', ended_at = p_at where id = r.id;
    return query select * from append_event(p_conversation, r.id, 'run.cancelled',
      '{"runId":"' || r.id || '","usage":' || run_usage_json(r) || '}', p_at);
  else
    update runs set status = 'failed', ended_at = p_at, error_code = p_error_code, error_text = p_error_text
      where id = r.id;
    return query select * from append_event(p_conversation, r.id, 'run.failed', '{"runId":"' || r.id || '","error":'
      || json_build_object('error', p_error_text, 'code', p_error_code) || ',"usage":' || run_usage_json(r) || '}', p_at);
  end if;
end $$;

-- Ends the attempts of all lanes whose node is not alive: not seen for p_lease_ms, or p_node itself when it has just been
-- started anew (p_is_start) and so executes nothing but what it took up again, p_kept. A node that asks is alive, however
-- long ago it said so: it may have stood still since.
create function reap_lanes(
  p_node uuid, p_is_start boolean, p_kept uuid[], p_lease_ms integer, p_max_attempts integer, p_error_text text, p_at timestamptz
) returns setof events language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  lane record;
begin
  for lane in
    select l.conversation_id from lanes l left join nodes n on n.id = l.node_id
      where l.state = 'running'
        and (n.id is null
          or case when n.id = p_node then p_is_start and l.conversation_id <> all (p_kept)
             else n.seen_at < now() - p_lease_ms * interval '1 millisecond' end)
      order by l.conversation_id limit 500 for update of l skip locked
  loop
    return query select * from end_attempt(lane.conversation_id, null, 'The node that ran it was lost.',
      p_max_attempts, 'lost', p_error_text, 0, false, p_at);
  end loop;
end $$;

-- Cancel. `outcome`: settled (nobody executed it), requested (its owner has to stop it), or the terminal status that it has.
create function cancel_run(p_run uuid, p_at timestamptz, out outcome text, out event json)
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  r runs;
  lane lanes;
  e events;
begin
  perform 1 from lanes where conversation_id = (select conversation_id from runs where id = p_run) for update;
  select * into r from runs where id = p_run;
  if r.status in ('completed', 'failed', 'cancelled') then
    outcome := r.status;
    return;
  end if;
  select * into lane from lanes where conversation_id = r.conversation_id;
  if lane.state = 'running' and lane.run_id = p_run then
    update runs set cancel_requested_at = coalesce(cancel_requested_at, p_at) where id = p_run;
    outcome := 'requested';
    return;
  end if;
  select * into e from cancel_waiting(r.conversation_id, p_run, p_at);
  event := json_build_object('seq', e.seq, 'runId', e.run_id, 'data', e.data);
  outcome := 'settled';
end $$;

-- Deletes a conversation: what waits in it is cancelled, what runs in it is asked to stop.
create function close_conversation(p_conversation uuid, p_at timestamptz, out running_run_id uuid, out cancelled json)
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
  lane lanes;
begin
  select * into lane from lanes where conversation_id = p_conversation for update;
  update conversations set deleted_at = coalesce(deleted_at, p_at) where id = p_conversation;
  select json_agg(json_build_object('seq', e.seq, 'runId', e.run_id, 'data', e.data) order by e.seq) into cancelled
    from cancel_waiting(p_conversation, null, p_at) e;
  if lane.state = 'running' then
    update runs set cancel_requested_at = coalesce(cancel_requested_at, p_at) where id = lane.run_id;
    running_run_id := lane.run_id;
  end if;
end $$;

-- A caller's answer to a question, with the event that tells of it. `outcome`: resolved, or missing, or answered before.
create function answer_question(
  p_run uuid, p_request text, p_answer text, p_event_type text, p_event text, p_at timestamptz,
  out outcome text, out conversation_id uuid, out events json
) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  r runs;
  asked questions;
  written events[];
begin
  select conversation_id into conversation_id from runs where id = p_run;
  perform 1 from lanes l where l.conversation_id = answer_question.conversation_id for update;
  select * into r from runs where id = p_run;
  select * into asked from questions where run_id = p_run and request_id = p_request;
  outcome := case when asked.run_id is null then 'missing'
                  when asked.resolved_at is not null or r.status <> 'awaiting_input' then 'answered' else 'resolved' end;
  if outcome <> 'resolved' then
    return;
  end if;
  update questions set answer = p_answer::json, resolved_at = p_at where run_id = p_run and request_id = p_request;
  select array_agg(e) into written from append_event(r.conversation_id, p_run, p_event_type, p_event, p_at) e;
  if not exists (select 1 from questions where run_id = p_run and resolved_at is null) then
    update runs set status = 'running' where id = p_run;
    select written || array_agg(e) into written from append_event(r.conversation_id, p_run, 'run.resumed',
      json_build_object('runId', p_run, 'requestId', p_request)::text, p_at) e;
  end if;
  select json_agg(json_build_object('seq', w.seq, 'type', w.type, 'runId', w.run_id, 'data', w.data) order by w.seq)
    into events from unnest(written) w;
end $$;
