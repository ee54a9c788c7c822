-- The work of these tasks is done: an answer each, 'gone' with the moment for those that are not kept.
create or replace function @s.ack_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_joined boolean, p_session uuid,
    p_ids text[], p_tokens bigint[], p_results text[], p_keeps bigint[]
) returns setof @s.answer language plpgsql @settings as $$
declare
--if lanes
    v_locks integer := 0;
--end
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    v_session bigint;
    v_done boolean[] := array_fill(false, array[cardinality(p_ids)]);
    v_ordinary boolean;
    v_ending boolean;
    v_gone bigint := 0;
    v_lanes text[] := array[]::text[];
    v_items bigint[] := array[]::bigint[];
    r record;
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return next @s.error('Stale', @n, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    v_ordinary := c.keep = 0 and not c.history and not v_listen;
    v_ending := not p_joined and exists (select from @s.sessions where expires_at <= v_now);
--if ids
    if not p_joined then
        perform @s.hold_@n(p_ids);
    end if;
--end
--unless ids
    if not p_joined and (v_ending or not v_ordinary) then
        perform @s.hold_@n(p_ids);
    end if;
--end
    if v_ending then
        return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    end if;
    select number into v_session from @s.sessions where uuid = p_session;
    -- The ordinary case, all at once: held by the caller, in time, not kept, nobody listens.
    if v_ordinary then
        for r in
            with asked as materialized (
                select @item_key as seq, i.token, i.keep, i.item
                from unnest(p_ids, p_tokens, p_keeps) with ordinality i (id, token, keep, item)
                -- A refusal must not hold somebody else's task for as long as the caller's transaction is open.
                where not p_joined or exists (
                    select from @s.tasks_@n x where x.@item_column = @item_key and x.session = v_session and x.token = i.token
                        and (x.deadline is null or x.deadline > v_now)
                )
                order by 1
            ), held as materialized (
                -- One by one in the order of their seq, so that two who ack the same tasks do not wait in a circle;
                -- those of the other case too, which would be waited for with these locked.
                select t.seq, asked.item, t.lane from asked cross join lateral (
                    -- offset: without it the conditions below would be asked first and the rest not locked
                    select * from @s.tasks_@n x where x.@item_column = asked.seq offset 0 for update
                ) t
                where t.state = 'taken' and t.session = v_session and t.token = asked.token
                    and coalesce(asked.keep, t.keep, 0) = 0 and (t.deadline is null or t.deadline > v_now)
                    and t.repeat is null and t.watched_until is null
            )
            delete from @s.tasks_@n t using held where t.seq = held.seq returning held.item, held.lane
        loop
            v_gone := v_gone + 1;
            v_done[r.item] := true;
--if lanes
            if r.lane is not null then
                v_lanes := v_lanes || r.lane;
                v_items := v_items || r.item;
            end if;
--end
        end loop;
        if v_gone > 0 then
            insert into @s.counts_@n values (v_gone, 'taken', 'gone', 'ack');
            return next @s.error('gone', @n, null, v_gone::integer, v_now);
            perform @s.wake(@n, false, true);
        end if;
        if v_gone = cardinality(p_ids) and cardinality(v_lanes) = 0 then
            return;
        end if;
    end if;
    for r in
        select i.item, i.id, i.token, i.result, i.keep, null::text as lane, null::integer as freed
        from unnest(p_ids, p_tokens, p_results, p_keeps) with ordinality i (id, token, result, keep, item)
        where not v_done[i.item]
--if lanes
        union all
        select case when cardinality(f.items) = 1 then f.items[1] else @s.opener_@n(c, f.lane, f.items) end,
            null, null, null, null, f.lane, cardinality(f.items)
        from (
            select u.lane, array_agg(u.item order by u.item) as items from unnest(v_lanes, v_items) u (lane, item) group by u.lane
        ) f
--end
        order by 1
    loop
--if lanes
        if r.lane is not null then
            v_locks := v_locks + 1;
            perform @s.freed_@n(c, r.lane, v_now, p_joined or v_locks > @locks, r.freed);
            continue;
        end if;
--end
        return query select * from @s.ack_one_@n(
            c, v_now, p_joined, v_listen, v_session, r.item::integer, r.id, r.token, r.result, r.keep
        );
    end loop;
end $$;

-- The task of an id as it will be when what is due for it is done; nothing is locked.
create or replace function @s.foreseen_@n(c @s.tubes, p_id text, p_now bigint) returns @s.task language plpgsql stable as $$
declare
    t @s.task;
    v_steps @s.step[];
begin
    select * into t from @s.tasks_@n where @by_id;
    while t.due_at <= p_now loop
        v_steps := @s.rule_settle(c, t);
        t := (v_steps[cardinality(v_steps)]).after;
        if t.seq is null or @s.is_gone(t) then
            return null;
        end if;
        t := @s.timed(t);
    end loop;
    return t;
end $$;

create or replace function @s.ack_one_@n(
    c @s.tubes, p_now bigint, p_joined boolean, p_listen boolean, p_session bigint, p_item integer, p_id text,
    p_token bigint, p_result text, p_keep bigint
) returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
    a @s.answer;
    v_error @s.answer;
    v_steps @s.step[];
begin
    if p_joined then  -- before anything is locked
        v_error := @s.lease_error(@n, @s.foreseen_@n(c, p_id, p_now), p_token, p_session, p_item);
        if v_error.kind is not null then
            return next v_error;
            return;
        end if;
    end if;
    for a in select * from @s.find_@n(c, p_id, p_now, p_joined, p_listen) loop
        if a.kind = 'step' then
            return next a;
        else
            select * into t from @s.tasks_@n where seq = a.seq;
        end if;
    end loop;
    v_error := @s.lease_error(@n, t, p_token, p_session, p_item);
    if v_error.kind is not null then
        return next v_error;
        return;
    end if;
    v_steps := @s.rule_ack(c, t, p_now, p_result, p_keep);
    perform @s.save_@n(c, t, v_steps, p_joined);
    if p_listen then
        return query select * from @s.announced(@n, v_steps);
    end if;
    return next @s.answer('task', @n, null, p_now, (v_steps[1]).after, p_item);
end $$;
--if lanes

-- Which of the items that gave slots back has opened the lane.
create or replace function @s.opener_@n(c @s.tubes, p_lane text, p_items bigint[]) returns bigint language plpgsql stable as $$
declare
    v_most bigint := (select concurrency from @s.limits_@n(c, p_lane));
    v_number bigint := cardinality(p_items);
begin
    return p_items[coalesce(least(v_number, greatest(1, v_number + 1 - v_most + @s.held_@n(p_lane, v_most))), 1)];
end $$;

-- Slots of a lane were given back by an ack.
create or replace function @s.freed_@n(c @s.tubes, p_lane text, p_now bigint, p_joined boolean, p_freed bigint)
returns void language plpgsql as $$
declare
    v_none @s.task;
    l record;
begin
    select * into l from @s.limits_@n(c, p_lane);
    perform @s.refresh_@n(
        c, p_lane, p_now, p_joined, v_none, v_none,
        l.concurrency is not null and @s.held_@n(p_lane, l.concurrency) + p_freed >= l.concurrency
    );
end $$;
--end

-- The ordinary case of one task that is held with its token, as short as it can be. No answer: it is another case.
create or replace function @s.ack1_@n(
    p_version bigint, p_now bigint, p_relaxed boolean, p_session uuid, p_id text, p_token bigint, out at bigint
) language plpgsql @settings as $$
declare
--if lanes
    c @s.tubes;
    v_lane text;
--end
    v_now bigint := @s.now_us(p_now);
    v_session bigint;
    v_wake boolean;
begin
    select s.number, exists (select from @s.waits w where w.tube = @n and w.ends and w.until > clock_timestamp())
        into v_session, v_wake
        from @s.tubes k, @s.sessions s
        where k.number = @n and k.version = p_version and k.keep = 0 and not k.history and s.uuid = p_session
            and not exists (select from @s.sessions where expires_at <= v_now);
    if not found then
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    delete from @s.tasks_@n x
        where @by_id and x.state = 'taken' and x.token = p_token and x.session = v_session
            and (x.deadline is null or x.deadline > v_now)
            and coalesce(x.keep, 0) = 0 and x.repeat is null and x.watched_until is null
--if lanes
        returning x.lane into v_lane;
--end
--unless lanes
        ;
--end
    if not found then
        return;
    end if;
    at := v_now;
    insert into @s.counts_@n values (1, 'taken', 'gone', 'ack');
--if lanes
    if v_lane is not null then
        select * into c from @s.tubes where number = @n;
        perform @s.freed_@n(c, v_lane, v_now, false, 1);
    end if;
--end
    if v_wake then
        perform pg_notify('@channel', '@n');
    end if;
end $$;
