-- Places for runs are given in turns (docs/decisions/0415-places-in-turns.md): who waits is looked up agent by agent, so that
-- a backlog of one costs the others nothing. Lanes that are claimed with their acceptance never enter this index.
create index lanes_waiting on lanes (org_id, agent_id, ready_at) where state = 'ready';
-- Of the looks before, which took the oldest of all.
drop index lanes_ready;

-- Of each agent that may run on the node, the lanes that have been ready the longest, together about p_max: one of each
-- agent at least, up to a thousand. Agents and organisations that have as many places as they get are left out; nothing
-- is locked.
create function waiting_lanes(p_node uuid, p_max integer, p_full_agents uuid[], p_full_orgs uuid[])
returns table (conversation_id uuid, org_id uuid, agent_id uuid)
language plpgsql stable
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
    -- From agent to agent, one look into the index each, however much of one is ready.
    with recursive agent as (
      (select l.org_id, l.agent_id from lanes l where l.state = 'ready' order by l.org_id, l.agent_id limit 1)
      union all
      select n.org_id, n.agent_id from agent p cross join lateral (
        select l.org_id, l.agent_id from lanes l
          where l.state = 'ready' and (l.org_id, l.agent_id) > (p.org_id, p.agent_id)
          order by l.org_id, l.agent_id limit 1) n
    ), may as materialized (
      select w.org_id, w.agent_id from agent w join agents a on a.id = w.agent_id
        where (a.node_id is null or a.node_id = p_node)
          and w.agent_id <> all (p_full_agents) and w.org_id <> all (p_full_orgs)
    )
    select f.conversation_id, m.org_id, m.agent_id from may m cross join lateral (
      select l.conversation_id, l.ready_at from lanes l
        where l.state = 'ready' and l.org_id = m.org_id and l.agent_id = m.agent_id
          and not (l.ready_at > now() and l.ready_at < now() + interval '1 minute')
        order by l.ready_at limit (select greatest(1, p_max / greatest(1, count(*))) from may)) f
      order by f.ready_at, f.conversation_id limit greatest(1000, p_max);
end $$;
