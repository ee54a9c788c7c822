-- Do all that is due up to a moment, in the order of (moment, rank, seq). Rows that others hold are left to them.
create or replace function @s.settle_@n(c @s.tubes, p_until bigint, p_most integer, p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
    v_at bigint := -1;
    v_rank smallint := -1;
    v_seq bigint := -1;
    v_steps @s.step[];
--if lanes
    v_lane text := '';
    v_lane_at bigint := -1;
    v_next_lane text;
    v_next_at bigint;
    v_found boolean;
    v_none @s.task;
--end
begin
--if adopted
    if @s.broken_@n() is not null then
        return;
    end if;
--end
--if ranked
    perform @s.label_@n(c, p_until);
--end
--unless adopted
    if not c.history and not p_listen then
        perform @s.settle_many_@n(p_until, p_most);
    end if;
--end
    for i in 1 .. p_most loop
        select * into t from @s.tasks_@n
            where due_at <= p_until and (due_at, due_rank, seq) > (v_at, v_rank, v_seq)
            order by due_at, due_rank, seq limit 1 for update skip locked;
--unless lanes
        exit when not found;
--end
--if lanes
        v_found := found;
        select k.lane, k.at into v_next_lane, v_next_at from @s.tickets_@n k
            where k.at <= p_until and (k.at, k.lane) > (v_lane_at, v_lane) order by k.at, k.lane limit 1;
        exit when not v_found and not found;
        if found and (not v_found or v_next_at < t.due_at) then
            v_lane := v_next_lane;
            v_lane_at := v_next_at;
            v_at := greatest(v_at, v_lane_at);
            v_rank := 4;
            v_seq := -1;
            -- Who has the lane may have read it too early, so the ticket stays for the next one. It is neither
            -- locked nor deleted without the lane's lock: two who settle would wait for each other.
            exit when i > @locks;
            if @s.lane_lock_@n(v_lane) then
                perform @s.refresh_@n(c, v_lane, v_lane_at, false, v_none, v_none, true);
                perform @s.wake(@n, true, false);
            end if;
            continue;
        end if;
--end
        v_at := t.due_at;
        v_rank := t.due_rank;
        v_seq := t.seq;
--if adopted
        continue when not @s.lock_row_@n(t.id);
        t := @s.with_data(c, t);
        perform @s.unattended(c, true);
--end
        v_steps := @s.rule_settle(c, t);
        perform @s.save_@n(c, t, v_steps, false);
--if adopted
        perform @s.unattended(c, false);
--end
        if p_listen then
            return query select * from @s.announced(@n, v_steps);
        end if;
    end loop;
end $$;

--unless adopted
-- Delays that are over, when they are many: all at once, since there is nobody to be told of each.
create or replace function @s.settle_many_@n(p_until bigint, p_most integer) returns void language plpgsql as $$
declare
    v_n bigint;
    v_lanes text[];
begin
    select count(*) into v_n from (
        select from @s.tasks_@n where due_at <= p_until and due_rank = 2 limit @many
    ) first_ones;
    if v_n < @many then
        return;
    end if;
    with due as materialized (
        select seq from @s.tasks_@n
        where due_at <= p_until and due_rank = 2 and (expires_at is null or expires_at > p_until)
        order by due_at, due_rank, seq limit p_most for update skip locked
    ), moved as (
        update @s.tasks_@n x set state = 'ready', due_at = x.expires_at, due_rank = case when x.expires_at is not null then 1 end
        from due where x.seq = due.seq returning x.lane, x.seq
    )
    select count(*), array_agg(lane order by seq) filter (where lane is not null) into v_n, v_lanes from moved;
    insert into @s.counts_@n values (v_n, 'delayed', 'ready', 'delay');
--if lanes
    perform @s.tell_lanes_@n(v_lanes);
--end
    perform @s.wake(@n, true, false);
end $$;

-- What a session holds, when that is much: given back all at once. What else is to be decided is left. Answers how many.
create or replace function @s.free_many_@n(p_session bigint, p_at bigint, p_closed boolean) returns bigint
language plpgsql @settings as $$
declare
    v_n bigint;
    v_lanes text[];
begin
    select count(*) into v_n from (
        select from @s.tasks_@n where session = p_session and state = 'taken' limit @many
    ) first_ones;
    if v_n < @many then
        return 0;
    end if;
    with held as materialized (
        select seq from @s.tasks_@n
        where session = p_session and state = 'taken' and not cancel_asked
            and (p_closed or max_attempts is null or attempt < max_attempts)
            and (expires_at is null or expires_at > p_at) and (due_at is null or due_at > p_at)
        order by seq for update skip locked
    ), freed as (
        update @s.tasks_@n x set state = 'ready', session = null, token = null, taken_at = null, deadline = null,
            ready_at = p_at, due_at = x.expires_at, due_rank = case when x.expires_at is not null then 1 end
        from held where x.seq = held.seq returning x.lane, x.seq
    )
    select count(*), array_agg(lane order by seq) filter (where lane is not null) into v_n, v_lanes from freed;
    insert into @s.counts_@n values (v_n, 'taken', 'ready', 'release');
--if lanes
    perform @s.tell_lanes_@n(v_lanes);
--end
    perform @s.wake(@n, true, true);
    return v_n;
end $$;

--end
--if lanes
-- Tickets for lanes that are not judged now: a transaction cannot hold a lock for each of very many.
create or replace function @s.tell_lanes_@n(p_lanes text[]) returns void language sql volatile as $$
    insert into @s.tickets_@n (pri, place, lane)
        select -9223372036854775808, nextval('@s.places_@n'), lane from (
            select lane from unnest(p_lanes) with ordinality l (lane, i) group by lane order by min(i)
        ) named
$$;

--end
-- The next moment at which time changes something here.
create or replace function @s.next_due_@n() returns bigint language sql volatile as $$
    select min(at) from (
        (select due_at as at from @s.tasks_@n where due_at is not null
--if adopted
            and @s.broken_@n() is null
--end
            order by due_at limit 1)
--if lanes
        union all
        (select at from @s.tickets_@n where at is not null order by at limit 1)
--end
    ) moments
$$;
