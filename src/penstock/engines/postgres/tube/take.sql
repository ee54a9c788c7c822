-- Grant up to p_n tasks to a session. info 'drained': nothing is left to wait for; 'again': there is more to look
-- at than one call may.
create or replace function @s.take_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_session uuid, p_name text,
    p_session_ttl bigint, p_direct boolean, p_n bigint, p_ttr bigint, p_lane text, p_drain boolean
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    v_session bigint;
    v_left bigint := p_n;
    v_granted bigint := 0;
    v_again boolean := false;
    v_over boolean;
    v_begun boolean;
    v_due boolean;
    v_plain boolean := false;
    v_told boolean := false;
    v_weak text;
    v_seqs bigint[];
    v_rising boolean;
--unless lanes
    v_from_pri bigint;
    v_from_seq bigint;
--end
--if lanes
    a @s.answer;
    v_noted bigint[] := '{}';
    v_own boolean := true;
    v_own_pri bigint := -9223372036854775808;
    v_own_place bigint := -9223372036854775808;
    v_head_pri bigint;
    v_head_place bigint;
    v_after_pri bigint := -9223372036854775808;
    v_after_place bigint := -1;
    v_after_lane text := '';
    v_pri bigint;
    v_place bigint;
    v_lane text;
    v_last boolean := true;
    v_looks bigint := 128 + least(p_n, 1000);
--if adopted
    v_seq bigint;
    v_id text;
--end
--unless adopted
    v_many boolean := false;
    v_lanes text[];
    v_places bigint[];
    v_whole boolean;
    v_last_place bigint;
    v_last_lane text;
    v_turns bigint;
    v_at bigint := v_now;
    g record;
--end
--end
begin
--unless adopted
    -- One statement for all that nearly always is as it should be.
    if not v_listen then
        select s.number, case when p_relaxed then set_config('synchronous_commit', 'off', true) end
--unless lanes
            , m.pri, m.seq into v_session, v_weak, v_from_pri, v_from_seq
            from @s.tubes k, @s.sessions s, @s.line_@n() m
--end
--if lanes
            into v_session, v_weak from @s.tubes k, @s.sessions s
--end
            where k.number = @n and k.version = p_version and not k.paused and k.concurrency is null and not k.history
                and s.uuid = p_session and exists (select from @s.marker)
                and not exists (select from @s.sessions where expires_at <= v_now)
                and not exists (select from @s.tasks_@n where due_at <= v_now)
--if lanes
                and p_lane is null and not exists (select from @s.tickets_@n where at is null)
                and not exists (select from @s.tickets_@n where at <= v_now)
--end
            ;
        v_plain := found and pg_try_advisory_xact_lock_shared(@s.session_lock(p_session));
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
        if c.concurrency is not null then
            perform pg_advisory_xact_lock(@lock + 1);  -- waited for before anything is locked
        end if;
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
            v_left := least(p_n, c.concurrency - (select count(*) from @s.tasks_@n where state = 'taken'));
        end if;
        v_left := case when c.paused then 0 else greatest(v_left, 0) end;
        p_n := v_left;
        if v_left > 0 then
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
            v_told := c.history or v_listen;
--unless lanes
            select m.pri, m.seq into v_from_pri, v_from_seq from @s.line_@n() m;
--end
--if lanes
--unless adopted
            v_many := c.lane_order = 'skip' and c.lane_rate is null
                and (c.lane_pick = 'turns' or coalesce(c.lane_concurrency = 1, false));
--end
--end
        end if;
    end if;
--unless lanes
    if v_left > 0 then
        select array_agg(p.seq), coalesce(min(p.pri) = max(p.pri), true) into v_seqs, v_rising from (
            select pri, seq from @s.tasks_@n where state = 'ready' and (pri, seq) >= (v_from_pri, v_from_seq)
            order by pri, seq limit v_left for update skip locked
        ) p;
        -- Tokens rise in the order of the grants. Mostly that is the order of the numbers, and then it costs less.
        if v_rising then
            return query update @s.tasks_@n x set @taking_v where x.seq = any (v_seqs)
                returning 'task', @n, null::integer, null, v_now, @row;
        else
            return query select * from @s.hand_out_@n(v_seqs, v_now, v_session, p_ttr);
        end if;
        get diagnostics v_granted = row_count;
    end if;
--end
--if lanes
    if v_left > 0 and p_lane is not null then
        -- Somebody else may be looking at this very lane; it is theirs for a moment only.
        if @s.lane_lock_@n(p_lane) then
            while v_left > 0 loop
                a := @s.grant_@n(c, p_lane, null, null, v_now, p_now is null, v_session, p_ttr);
                exit when a.seq is null;
                v_left := v_left - 1;
                v_noted := v_noted || a.seq;
                return next a;
            end loop;
        else
            v_again := true;
        end if;
        v_granted := p_n - v_left;
    elsif v_left > 0 then
        -- The first of the line again and again.
        loop
            if v_looks <= 0 then
                v_again := true;
                exit;
            end if;
            if not v_plain then
                select k.pri, k.place, k.lane into v_pri, v_place, v_lane from @s.tickets_@n k
                    where k.at is null and (k.pri, k.place, k.lane) > (v_after_pri, v_after_place, v_after_lane)
                    order by k.pri, k.place, k.lane limit 1;
                v_last := not found;
                if v_own and v_head_pri is null then
                    select x.pri, x.place into v_head_pri, v_head_place from @s.tasks_@n x
                        where x.lane is null and x.state = 'ready' and (x.pri, x.place) > (v_own_pri, v_own_place)
                        order by x.pri, x.place limit 1;
                    v_own := found;
                end if;
            end if;
            if v_last then
                v_pri := 9223372036854775807;
                v_place := 9223372036854775807;
            end if;
            if v_own and (v_plain or (v_head_pri, v_head_place) < (v_pri, v_place)) then
--if adopted
                -- One by one, each with its row of the table.
                select x.seq, x.id, x.pri, x.place into v_seq, v_id, v_own_pri, v_own_place from @s.tasks_@n x
                    where x.lane is null and x.state = 'ready' and (x.pri, x.place) >= (v_head_pri, v_head_place)
                        and (x.pri, x.place) < (v_pri, v_place)
                    order by x.pri, x.place limit 1 for update skip locked;
                v_head_pri := null;
                if found then
                    if @s.lock_row_@n(v_id) then
                        update @s.tasks_@n x set @taking_v where x.seq = v_seq
                            returning 'task', @n, null::integer, null, v_now, @row into a;
                        v_left := v_left - 1;
                        v_noted := v_noted || v_seq;
                        return next a;
                        exit when v_left = 0;
                    end if;
                    v_looks := v_looks - 1;
                    continue;
                end if;
--end
--unless adopted
                -- All that stand before the lane. Tokens rise in the order of the grants. Mostly that is the order of
                -- the numbers, and then it costs less.
                select array_agg(p.seq), coalesce(bool_and(p.seq > p.before), true) into v_seqs, v_rising from (
                    select seq, lag(seq) over () as before from (
                        select seq from @s.tasks_@n
                        where lane is null and state = 'ready' and (pri, place) > (v_own_pri, v_own_place)
                            and (pri, place) < (v_pri, v_place)
                        order by pri, place limit v_left for update skip locked
                    ) first
                ) p;
                if v_rising then
                    return query update @s.tasks_@n x set @taking_v where x.seq = any (v_seqs)
                        returning 'task', @n, null::integer, null, v_now, @row;
                else
                    return query select * from @s.hand_out_@n(v_seqs, v_now, v_session, p_ttr);
                end if;
                get diagnostics v_granted = row_count;
                v_left := v_left - v_granted;
                v_noted := v_noted || v_seqs;
                v_head_pri := null;
--end
                v_own_pri := v_pri;
                v_own_place := v_place;
            end if;
            exit when v_left = 0 or v_last;
--unless adopted
            if v_many and v_left > 2 then
                continue when v_own and v_head_pri is null;
                -- The lanes that stand there with the same priority, up to the next task without one.
                with line as materialized (
                    select k.*, row_number() over () as i from (
                        select pri, place, lane from @s.tickets_@n
                        where at is null and (pri, place, lane) > (v_after_pri, v_after_place, v_after_lane)
                            and (pri, place) < (
                                case when v_own then v_head_pri else 9223372036854775807 end,
                                case when v_own then v_head_place else 9223372036854775807 end
                            )
                        order by pri, place, lane limit least(v_left, v_looks, 100)
                    ) k
                ), firsts as materialized (
                    select distinct on (lane) lane, place, i from line where pri = v_pri order by lane, i
                ), locked as materialized (
                    select lane, place, i, @s.lane_lock_@n(lane) as mine from firsts order by i
                )
                select array_agg(lane order by i) filter (where mine), array_agg(place order by i) filter (where mine),
                        (select count(*) < least(v_left, v_looks, 100) or max(pri) > v_pri from line),
                        (select place from line where pri = v_pri order by i desc limit 1),
                        (select lane from line where pri = v_pri order by i desc limit 1)
                    into v_lanes, v_places, v_whole, v_last_place, v_last_lane from locked;
                v_looks := v_looks - coalesce(cardinality(v_lanes), 0) - 1;
                -- If that is all, each may have its turn several times.
                v_turns := case when v_whole and not (v_own and v_head_pri = v_pri)
                    then (v_left - 1) / coalesce(cardinality(v_lanes), 1) + 1 else 1 end;
                select * into g from @s.turns_@n(v_lanes, v_places, v_pri, v_turns, v_left);
                perform from @s.tasks_@n where seq = any (g.seqs) and state = 'ready' for update skip locked;
                get diagnostics v_granted = row_count;
                if g.special or v_granted < cardinality(g.seqs) then
                    v_many := false;  -- or somebody has one of them
                    continue;
                end if;
                if p_now is null then
                    -- A lane may have been freed since this call began: its leases must not seem to overlap.
                    v_at := greatest(v_now, @s.now_us());
                end if;
                return query select * from @s.hand_out_@n(g.seqs, v_at, v_session, p_ttr);
                v_left := v_left - v_granted;
                v_noted := v_noted || g.seqs;
                delete from @s.tickets_@n where ctid = any (g.tickets);
                insert into @s.tickets_@n (pri, place, lane)
                    select m.pri, m.place, m.lane from unnest(g.pris, g.places, g.lanes) m (pri, place, lane);
                insert into @s.tickets_@n (pri, place, lane)
                    select h.pri, case when g.by_seq then h.seq else nextval('@s.places_@n') end, h.lane from (
                        select x.pri, x.seq, o.lane from unnest(g.open) with ordinality o (lane, i) cross join lateral (
                            select t.pri, t.seq from @s.tasks_@n t where t.lane = o.lane and t.state = 'ready'
                            order by t.pri, t.seq limit 1
                        ) x order by o.i
                    ) h;
                v_many := cardinality(v_lanes) > 3 or v_granted > 3;
                v_after_pri := v_pri;
                v_after_place := coalesce(g.until - 1, v_last_place);
                v_after_lane := case when g.until is null then v_last_lane else '' end;
                continue;
            end if;
--end
            v_looks := v_looks - 1;
            v_after_pri := v_pri;
            v_after_place := v_place;
            v_after_lane := v_lane;
            continue when not @s.lane_lock_@n(v_lane);
            a := @s.grant_@n(c, v_lane, v_pri, v_place, v_now, p_now is null, v_session, p_ttr);
            if a.seq is not null then
                v_left := v_left - 1;
                v_noted := v_noted || a.seq;
                return next a;
                exit when v_left = 0;
            end if;
        end loop;
        v_granted := p_n - v_left;
    end if;
--end
    if v_granted > 0 then
        if v_told then
--unless lanes
            return query select * from @s.note_takes_@n(c, v_now, v_seqs, v_listen);
--end
--if lanes
            return query select * from @s.note_takes_@n(c, v_now, v_noted, v_listen);
--end
        end if;
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

-- Grants of tasks that are locked, in this order.
create or replace function @s.hand_out_@n(p_seqs bigint[], p_now bigint, p_session bigint, p_ttr bigint)
returns setof @s.answer language plpgsql as $$
declare
    v_part bigint[];
    v_tokens bigint[];
begin
    for i in 1 .. coalesce(cardinality(p_seqs), 0) by 200 loop
        v_part := p_seqs[i : i + 199];
        v_tokens := array(select nextval('@s.tokens') from generate_series(1, cardinality(v_part)));
        return query
            with taken as (update @s.tasks_@n x set @taking_part where x.seq = any (v_part) returning x.*)
            select 'task', @n, null::integer, null, p_now, @row from taken x order by x.token;
    end loop;
end $$;

-- What a batch of grants leaves in the history and tells listeners.
create or replace function @s.note_takes_@n(c @s.tubes, p_now bigint, p_seqs bigint[], p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
begin
    for t in select * from @s.tasks_@n where seq = any (p_seqs) order by token loop
        return query select * from @s.note_take(c, t, p_now, p_listen);
    end loop;
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
--end
--if lanes

-- Grant the first task of a lane whose lock is held. p_pri and p_place: the ticket that led here; a lane that
-- belongs further back in the line is sent there instead.
create or replace function @s.grant_@n(
    c @s.tubes, p_lane text, p_pri bigint, p_place bigint, p_now bigint, p_real boolean, p_session bigint, p_ttr bigint
) returns @s.answer language plpgsql as $$
declare
    a @s.answer;
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
    update @s.tasks_@n x set @taking_p where x.seq = v_seq
        returning 'task', @n, null::integer, null, p_now, @row into a;
    if l.rate is not null then
        l.tat := greatest(p_now, l.tat) + l.step;
        l.next_at := l.tat - (l.burst - 1) * l.step;
        insert into @s.lanes_@n (lane, tat) values (p_lane, l.tat) on conflict (lane) do update set tat = excluded.tat;
    end if;
    delete from @s.tickets_@n where ctid = any (v_tickets);
    if v_held + 1 >= l.concurrency then
        return a;
    end if;
    select * into v_seq, v_pri from @s.head_@n(c, p_lane);
    if v_seq is not null then
        insert into @s.tickets_@n (pri, place, lane, at) values (
            v_pri, case when c.lane_pick = 'order' then v_seq else nextval('@s.places_@n') end, p_lane,
            case when l.next_at > p_now then l.next_at end
        );
    end if;
    return a;
end $$;
--end
