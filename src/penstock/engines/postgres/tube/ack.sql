-- The work of these tasks is done: an answer each, 'gone' with the moment for those that are not kept.
create or replace function @s.ack_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_joined boolean, p_session uuid,
    p_ids text[], p_tokens bigint[], p_results text[], p_keeps bigint[]
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    v_all integer := cardinality(p_ids);
    v_session bigint;
    v_weak text;
    v_plain boolean := false;
    v_ordinary boolean := true;
    v_ending boolean;
    v_wake boolean;
    v_gone integer := 0;
    v_seqs bigint[];
    v_tokens bigint[];
    v_items bigint[] := array[]::bigint[];
    v_which bigint[];
    v_lanes text[] := array[]::text[];
    v_done boolean[];
    v_item bigint;
    r record;
--if lanes
    v_mine text[];
    v_others text[];
    v_simple boolean;
--end
begin
--unless ids
    -- One statement for all that nearly always is as it should be.
    if not p_joined and not v_listen then
        select s.number, case when p_relaxed then set_config('synchronous_commit', 'off', true) end
            into v_session, v_weak from @s.tubes k, @s.sessions s
            where k.number = @n and k.version = p_version and k.keep = 0 and not k.history and s.uuid = p_session
                and not exists (select from @s.sessions where expires_at <= v_now);
        v_plain := found;
    end if;
--end
    if not v_plain then
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
    end if;
--unless ids
    -- The ordinary case of all of them: held by the caller, in time, not kept, nobody listens. They go in one order, so
    -- that two who ack the same tasks do not wait in a circle.
    if v_plain and p_keeps is null then
        select array_agg(i.seq), array_agg(i.token), array_agg(i.item) into v_seqs, v_tokens, v_items from (
            select u.id::bigint as seq, u.token, u.item
            from unnest(p_ids, p_tokens) with ordinality u (id, token, item) order by 1
        ) i;
        with gone as (
            delete from @s.tasks_@n t
            where t.seq = any (v_seqs) and v_tokens = (
                    select array_agg(h.token order by h.seq) from @s.tasks_@n h
                    where h.seq = any (v_seqs) and h.state = 'taken' and h.session = v_session
                        and coalesce(h.keep, 0) = 0 and (h.deadline is null or h.deadline > v_now)
                        and h.repeat is null and h.watched_until is null
                )
                -- What may have changed since: a lease that was granted since has a higher token than any of these.
                and t.state = 'taken' and t.session = v_session and t.token <= (select max(token) from unnest(v_tokens) k (token))
                and (t.deadline is null or t.deadline > v_now) and t.watched_until is null
            returning t.seq, t.lane
        )
        select count(*), array_agg(seq), array_agg(lane) into v_gone, v_which, v_lanes from gone;
        if v_gone < v_all then
            select array_agg(i.item order by i.seq) into v_items
                from unnest(v_seqs, v_items) i (seq, item) where i.seq = any (v_which);
        end if;
    end if;
--end
    -- The same where some are of another case.
    if v_ordinary and v_gone < v_all then
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
                -- One by one in the order of their seq; those of the other case too, which would be waited for with
                -- these locked.
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
            v_items := v_items || r.item;
            v_lanes := v_lanes || r.lane;
        end loop;
    end if;
    if v_gone > 0 then
        insert into @s.counts_@n values (v_gone, 'taken', 'gone', 'ack') returning exists (
            select from @s.waits w where w.tube = @n and w.ends and w.until > clock_timestamp()
        ) into v_wake;
        if v_wake then
            perform pg_notify('@channel', '@n');
        end if;
        return next @s.error('gone', @n, null, v_gone, v_now);
    end if;
--if lanes
    if array_remove(v_lanes, null) <> '{}' then
        -- Who has the lock of a lane may still count these tasks, so it is to be looked at again.
        select array_agg(f.lane order by f.item) filter (where f.mine),
                array_agg(f.lane order by f.item) filter (where not f.mine)
            into v_mine, v_others from (
                select l.lane, l.item, not p_joined and l.number <= @locks and @s.lane_lock_@n(l.lane) as mine from (
                    select u.lane, min(u.item) as item, row_number() over (order by min(u.item)) as number
                    from unnest(v_lanes, v_items) u (lane, item) where u.lane is not null group by u.lane
                ) l
            ) f;
        if v_others is not null then
            perform @s.tell_lanes_@n(v_others);
        end if;
        -- An ack opens no lane that has no limit.
        select array_agg(m.lane), bool_and(m.simple) into v_mine, v_simple from (
            select o.lane, k.lane_order = 'skip' and coalesce(l.rate, k.lane_rate) is null as simple
            from unnest(v_mine) o (lane) cross join @s.tubes k
            left join lateral (select * from @s.lanes_@n where lane = o.lane offset 0) l on true
            where k.number = @n and coalesce(l.concurrency, k.lane_concurrency) is not null
        ) m;
        if v_simple and v_gone = v_all then
            perform @s.freed_many_@n(v_mine, v_lanes, v_items);
            return;
        end if;
    end if;
--end
    if v_gone = v_all
--if lanes
        and v_mine is null
--end
    then
        return;
    end if;
    if v_plain then
        select * into c from @s.tubes where number = @n;
    end if;
    v_done := array_fill(v_gone = v_all, array[v_all]);
    if v_gone between 1 and v_all - 1 then
        foreach v_item in array v_items loop
            v_done[v_item] := true;
        end loop;
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
            select u.lane, array_agg(u.item order by u.item) as items from unnest(v_lanes, v_items) u (lane, item)
            where u.lane = any (v_mine) group by u.lane
        ) f
--end
        order by 1
    loop
--if lanes
        if r.lane is not null then
            perform @s.freed_@n(c, r.lane, v_now, false, r.freed);
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

-- Slots of several lanes were given back, by these items; their locks are held, and none has a rate or is strict.
create or replace function @s.freed_many_@n(p_which text[], p_lanes text[], p_items bigint[]) returns void
language plpgsql as $$
begin
    with judged as materialized (
        select f.lane, t.tickets, h.seq, h.pri, k.lane_pick = 'order' as by_seq, t.place, t.pri as stands,
            h.seq is not null and not coalesce(l.paused, false) and held.n < most.n as open,
            t.place is null or t.timed or held.n + f.number >= most.n as back,
            f.items[least(f.number, greatest(1, f.number + 1 - most.n + held.n))] as opener
        from (
            select u.lane, array_agg(u.item order by u.item) as items, count(*) as number
            from unnest(p_lanes, p_items) u (lane, item) where u.lane = any (p_which) group by u.lane
        ) f
        cross join @s.tubes k
        left join lateral (select * from @s.lanes_@n where lane = f.lane offset 0) l on true
        cross join lateral (select coalesce(l.concurrency, k.lane_concurrency)) most (n)
        cross join lateral (
            select count(*) from (select from @s.tasks_@n x where x.lane = f.lane and x.state = 'taken' limit most.n + 1) s
        ) held (n)
        left join lateral (
            select x.seq, x.pri from @s.tasks_@n x where x.lane = f.lane and x.state = 'ready' order by x.pri, x.seq limit 1
        ) h on true
        cross join lateral (
            select array_agg(s.ctid) as tickets, nullif(min(s.place) filter (where s.at is null), 9223372036854775807) as place,
                min(s.pri) as pri, bool_or(s.at is not null) as timed
            from (select ctid, pri, place, at from @s.tickets_@n where lane = f.lane limit 500) s
        ) t
        where k.number = @n
    ), changed as materialized (
        select *, case when by_seq then seq when not back then place end as stays from judged
        where not coalesce(
            open and cardinality(tickets) = 1 and stands = pri and place = case when by_seq then seq when not back then place end,
            false
        )
    ), gone as (
        delete from @s.tickets_@n where ctid = any (array(select unnest(tickets) from changed))
    )
    insert into @s.tickets_@n (pri, place, lane)
        select o.pri, coalesce(o.stays, nextval('@s.places_@n')), o.lane
        from (select * from changed where open order by opener, lane) o;
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
