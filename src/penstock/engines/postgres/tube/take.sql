-- Grant up to p_n tasks to a session. info 'drained': nothing is left to wait for; 'again': there is more to look
-- at than one call may.
create or replace function @s.take_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_session uuid, p_name text,
    p_session_ttl bigint, p_direct boolean, p_n bigint, p_ttr bigint, p_lane text, p_drain boolean
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    t @s.task;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    v_session bigint;
    v_granted bigint := 0;
    v_again boolean := false;
    v_over boolean;
    v_begun boolean;
    v_due boolean;
--unless lanes
    v_token bigint;
    v_from_pri bigint;
    v_from_seq bigint;
--end
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return next @s.error('Stale', @n, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if c.concurrency is not null then
        perform pg_advisory_xact_lock(@lock + 1);  -- waited for before anything is locked
    end if;
    -- One statement for all that nearly always is as it should be.
    select exists (select from @s.sessions where expires_at <= v_now), exists (select from @s.marker),
        exists (select from @s.tasks_@n where due_at <= v_now)
--if lanes
            or exists (select from @s.tickets_@n where at <= v_now)
--end
--if ranked
            or exists (select from @s.tasks_@n where seq >= 4611686018427387904)
--end
        into v_over, v_begun, v_due;
    if v_over then
        return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    end if;
    if v_over or v_due then
        -- A portion of it, if it is very much.
        v_again := (select count(*) from (select from @s.tasks_@n where due_at <= v_now limit 5001) due) > 5000
--if lanes
            or (select count(*) from (select from @s.tickets_@n where at <= v_now limit @locks + 1) due) > @locks
--end
        ;
        return query select * from @s.settle_@n(c, v_now, 5000, v_listen);
    end if;
    if c.concurrency is not null then
        p_n := least(p_n, c.concurrency - (select count(*) from @s.tasks_@n where state = 'taken'));
    end if;
    if not c.paused and p_n > 0 then
        if not v_begun then
            perform @s.begin_run(v_now);
        end if;
        if not pg_try_advisory_xact_lock_shared(@s.session_lock(p_session)) then
            return next @s.error('again', @n, null);  -- somebody ends it: it will be made anew
            return;
        end if;
        select number into v_session from @s.sessions where uuid = p_session;
        if not found then
            v_session := @s.join_session(p_session, p_name, p_session_ttl, p_direct, v_now);
        end if;
--unless lanes
        select m.pri, m.seq into v_from_pri, v_from_seq from (
            select k.pri, k.seq from @s.marks_@n k
            union all (select l.pri, l.seq from @s.lows_@n l order by l.pri, l.seq limit 1)
        ) m order by m.pri, m.seq limit 1;
        select last_value into v_token from @s.tokens;
        return query
            with picked as materialized (
                select seq from @s.tasks_@n
                where state = 'ready' and (pri, seq) >= (v_from_pri, v_from_seq)
                order by pri, seq limit p_n for update skip locked
            ), taken as (
                update @s.tasks_@n x set @taking_v from picked where x.seq = picked.seq returning x.*
            )
            select 'task', @n, null::integer, null, v_now, @row from taken x order by x.pri, x.seq;
        get diagnostics v_granted = row_count;
        if v_granted > 0 and (c.history or v_listen) then
            return query select * from @s.note_takes_@n(c, v_now, v_session, v_token, v_listen);
        end if;
--end
--if lanes
        for t in select * from @s.pick_@n(c, v_now, p_now is null, v_session, p_n, p_ttr, p_lane) loop
            if t.seq is null then
                v_again := true;
                continue;
            end if;
            v_granted := v_granted + 1;
            return next @s.answer('task', @n, null, v_now, t);
            if c.history or v_listen then
                return query select * from @s.note_take(c, t, v_now, v_listen);
            end if;
        end loop;
--end
    end if;
    if v_granted > 0 then
        insert into @s.counts_@n values (v_granted, 'ready', 'taken', 'take');
    end if;
    if v_again and v_granted < p_n then
        return next @s.error('again', @n, null);
    elsif v_granted = 0 and p_drain and not exists (
        select from @s.totals_@n() where state in ('ready', 'delayed', 'taken') and n > 0
    ) then
        return next @s.error('drained', @n, null);
    end if;
end $$;
--unless lanes

-- The ordinary case of one task, as short as it can be. 'unusual': it is another case, and nothing was done.
create or replace function @s.take1_@n(p_version bigint, p_now bigint, p_relaxed boolean, p_session uuid, p_ttr bigint)
returns setof @s.answer language plpgsql @settings as $$
declare
    v_now bigint := @s.now_us(p_now);
    v_session bigint;
    v_from_pri bigint;
    v_from_seq bigint;
    v_seq bigint;
begin
    select s.number, m.pri, m.seq into v_session, v_from_pri, v_from_seq
        from @s.tubes c, @s.sessions s, @s.line_@n() m
        where c.number = @n and c.version = p_version and not c.paused and c.concurrency is null and not c.history
            and s.uuid = p_session
            and exists (select from @s.marker)
            and not exists (select from @s.sessions where expires_at <= v_now)
            and not exists (select from @s.tasks_@n where due_at <= v_now);
    if not found or not pg_try_advisory_xact_lock_shared(@s.session_lock(p_session)) then
        return next @s.error('unusual', @n, null);
        return;
    end if;
    select x.seq into v_seq from @s.tasks_@n x
        where x.state = 'ready' and (x.pri, x.seq) >= (v_from_pri, v_from_seq)
        order by x.pri, x.seq limit 1 for update skip locked;
    if found then
        if p_relaxed then
            perform set_config('synchronous_commit', 'off', true);
        end if;
        return query update @s.tasks_@n x set @taking_v where x.seq = v_seq
            returning 'task', @n, null::integer, null, v_now, @row;
        insert into @s.counts_@n values (1, 'ready', 'taken', 'take');
    end if;
end $$;

-- What a batch of grants leaves in the history and tells listeners.
create or replace function @s.note_takes_@n(c @s.tubes, p_now bigint, p_session bigint, p_after bigint, p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
begin
    for t in select * from @s.tasks_@n
        where session = p_session and state = 'taken' and token > p_after and xmin = pg_current_xact_id()::xid order by token
    loop
        return query select * from @s.note_take(c, t, p_now, p_listen);
    end loop;
end $$;
--end
--if lanes

-- Grants of one call: the first of the line again and again. A row of nulls at the end: there is more to look at.
create or replace function @s.pick_@n(
    c @s.tubes, p_now bigint, p_real boolean, p_session bigint, p_n bigint, p_ttr bigint, p_lane text
) returns setof @s.task language plpgsql as $$
declare
    t @s.task;
    v_own @s.task;
    v_own_pri bigint := -9223372036854775808;
    v_own_place bigint := -1;
    v_pri bigint := -9223372036854775808;
    v_place bigint := -1;
    v_lane text := '';
    k record;
    v_granted bigint := 0;
begin
    if p_lane is not null then
        -- Somebody else may be looking at this very lane; it is theirs for a moment only.
        if not @s.lane_lock_@n(p_lane) then
            return next null;
            return;
        end if;
        while v_granted < p_n loop
            t := @s.grant_@n(c, p_lane, null, null, p_now, p_real, p_session, p_ttr);
            exit when t.seq is null;
            v_granted := v_granted + 1;
            return next t;
        end loop;
        return;
    end if;
    for i in 1 .. 128 + least(p_n, 1000) loop
        if v_own.seq is null and v_own_place is not null then
            select * into v_own from @s.tasks_@n
                where lane is null and state = 'ready' and (pri, place) > (v_own_pri, v_own_place)
                order by pri, place limit 1 for update skip locked;
            if not found then
                v_own_place := null;
            end if;
--if adopted
            if found and not @s.lock_row_@n(v_own.id) then
                v_own_pri := v_own.pri;
                v_own_place := v_own.place;
                v_own := null;
                continue;
            end if;
--end
        end if;
        select pri, place, lane into k from @s.tickets_@n
            where at is null and (pri, place, lane) > (v_pri, v_place, v_lane) order by pri, place, lane limit 1;
        if v_own.seq is not null and (k.lane is null or (v_own.pri, v_own.place) < (k.pri, k.place)) then
            update @s.tasks_@n x set @taking_p where x.seq = v_own.seq returning * into t;
            v_own_pri := v_own.pri;
            v_own_place := v_own.place;
            v_own := null;
        elsif k.lane is null then
            return;
        else
            v_pri := k.pri;
            v_place := k.place;
            v_lane := k.lane;
            if not @s.lane_lock_@n(k.lane) then
                continue;
            end if;
            t := @s.grant_@n(c, k.lane, k.pri, k.place, p_now, p_real, p_session, p_ttr);
        end if;
        if t.seq is not null then
            v_granted := v_granted + 1;
            return next t;
            if v_granted = p_n then
                return;
            end if;
        end if;
    end loop;
    return next null;
end $$;

-- Grant the first task of a lane whose lock is held. p_pri and p_place: the ticket that led here; a lane that
-- belongs further back in the line is sent there instead.
create or replace function @s.grant_@n(
    c @s.tubes, p_lane text, p_pri bigint, p_place bigint, p_now bigint, p_real boolean, p_session bigint, p_ttr bigint
) returns @s.task language plpgsql as $$
declare
    t @s.task;
    v_tickets tid[];
    v_place bigint;
    v_seq bigint;
    v_pri bigint;
    v_held bigint := 0;
    l record;
begin
    select array_agg(ctid), min(place) filter (where at is null) into v_tickets, v_place
        from (select ctid, place, at from @s.tickets_@n where lane = p_lane limit 500) seen;
    if v_place is null and p_pri is not null then
        return null;  -- another taker was here first, and left nothing or a timer
    end if;
    c := @s.current_@n(c);
    select * into l from @s.limits_@n(c, p_lane);
    if l.concurrency is not null then
        v_held := @s.held_@n(p_lane, l.concurrency);
    end if;
    select * into v_seq, v_pri from @s.head_@n(c, p_lane);
    if v_seq is null or l.paused or v_held >= l.concurrency or l.next_at > p_now then
        delete from @s.tickets_@n where ctid = any (v_tickets);
        if v_seq is not null and l.next_at > p_now then
            insert into @s.tickets_@n (pri, place, lane, at) values (v_pri, v_seq, p_lane, l.next_at);
        end if;
        return null;
    end if;
    if c.lane_pick = 'order' then
        v_place := v_seq;
    elsif v_place = 9223372036854775807 then
        v_place := nextval('@s.places_@n');
    end if;
    if v_pri > p_pri or (v_pri = p_pri and v_place > p_place) then
        delete from @s.tickets_@n where ctid = any (v_tickets);
        insert into @s.tickets_@n (pri, place, lane) values (v_pri, v_place, p_lane);
        return null;
    end if;
    perform from @s.tasks_@n where seq = v_seq and state = 'ready' for update skip locked;
    if not found then
        return null;
    end if;
--if adopted
    if not @s.lock_row_@n((select id from @s.tasks_@n where seq = v_seq)) then
        return null;
    end if;
--end
    if p_real then
        -- The lane may have been freed since this call began: its leases must not seem to overlap.
        p_now := greatest(p_now, @s.now_us());
    end if;
    update @s.tasks_@n x set @taking_p where x.seq = v_seq returning * into t;
    if l.rate is not null then
        l.tat := greatest(p_now, l.tat) + l.step;
        l.next_at := l.tat - (l.burst - 1) * l.step;
        insert into @s.lanes_@n (lane, tat) values (p_lane, l.tat) on conflict (lane) do update set tat = excluded.tat;
    end if;
    delete from @s.tickets_@n where ctid = any (v_tickets);
    if v_held + 1 >= l.concurrency then
        return t;
    end if;
    select * into v_seq, v_pri from @s.head_@n(c, p_lane);
    if v_seq is not null then
        insert into @s.tickets_@n (pri, place, lane, at) values (
            v_pri, case when c.lane_pick = 'order' then v_seq else nextval('@s.places_@n') end, p_lane,
            case when l.next_at > p_now then l.next_at end
        );
    end if;
    return t;
end $$;
--end
