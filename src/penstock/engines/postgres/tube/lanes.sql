-- Lanes by tickets: whoever may have made a lane grantable leaves a ticket for it in the same transaction, and only
-- who holds the lane's lock, has read its tickets, and has judged the lane in a later statement, removes those.

create or replace function @s.lane_lock_@n(p_lane text) returns boolean
language sql volatile as $$ select pg_try_advisory_xact_lock(hashtextextended(p_lane, @lock)) $$;

-- What holds for a lane. next_at: when its rate lets the next task through.
create or replace function @s.limits_@n(
    c @s.tubes, p_lane text, out concurrency bigint, out rate double precision, out burst bigint, out paused boolean,
    out step bigint, out tat bigint, out next_at bigint
) language plpgsql stable as $$
begin
    select l.concurrency, l.rate, l.burst, l.paused, l.tat into concurrency, rate, burst, paused, tat
        from @s.lanes_@n l where l.lane = p_lane;
    concurrency := coalesce(concurrency, c.lane_concurrency);
    rate := coalesce(rate, c.lane_rate);
    burst := coalesce(burst, c.lane_burst);
    paused := coalesce(paused, false);
    tat := coalesce(tat, 0);
    if rate is not null then
        step := ceil(1000000 / rate);
        next_at := tat - (burst - 1) * step;
    end if;
end $$;

-- The task that a grant from a lane would be for.
create or replace function @s.head_@n(c @s.tubes, p_lane text, out seq bigint, out pri bigint)
language plpgsql stable as $$
declare
    v_state text;
begin
    if c.lane_order = 'strict' then
        select t.seq, t.pri, t.state into seq, pri, v_state from @s.tasks_@n t
            where t.lane = p_lane and t.state in ('ready', 'delayed', 'buried') order by t.pri, t.seq limit 1;
        if v_state is distinct from 'ready' then
            seq := null;
            pri := null;
        end if;
    else
        select t.seq, t.pri into seq, pri from @s.tasks_@n t
            where t.lane = p_lane and t.state = 'ready' order by t.pri, t.seq limit 1;
    end if;
end $$;

-- The tube as it is now. What a call read when it began may be of before an alter, whose tickets for lanes that it
-- opened would be dropped by whoever still judged them by the old options.
create or replace function @s.current_@n(c @s.tubes) returns @s.tubes language plpgsql stable as $$
declare
    v_new @s.tubes;
begin
    select * into v_new from @s.tubes where number = @n and version <> c.version;
    return case when found then v_new else c end;
end $$;

create or replace function @s.held_@n(p_lane text, p_most bigint) returns bigint
language sql stable as $$
    select count(*) from (select from @s.tasks_@n where lane = p_lane and state = 'taken' limit p_most) held
$$;

-- True when an open lane stood in the line before one of its tasks changed, and not with that one.
create or replace function @s.stays_@n(c @s.tubes, p_lane text, p_before @s.task, p_after @s.task) returns boolean
language plpgsql stable as $$
declare
    o record;
begin
    if p_before.seq is null and p_after.seq is null then
        return true;
    elsif c.lane_order = 'strict' then
        select t.seq, t.pri, t.state into o from @s.tasks_@n t
            where t.lane = p_lane and t.state in ('ready', 'delayed', 'buried') and t.seq <> coalesce(p_before.seq, p_after.seq)
            order by t.pri, t.seq limit 1;
    else
        select t.seq, t.pri, t.state into o from @s.tasks_@n t
            where t.lane = p_lane and t.state = 'ready' and t.seq <> coalesce(p_before.seq, p_after.seq)
            order by t.pri, t.seq limit 1;
    end if;
    if p_before.lane = p_lane and (p_before.state = 'ready' or (c.lane_order = 'strict' and p_before.state in ('delayed', 'buried')))
        and (o.seq is null or (p_before.pri, p_before.seq) < (o.pri, o.seq))
    then
        return coalesce(
            p_before.state = 'ready' and p_after.state = 'ready' and p_after.lane = p_lane and p_after.pri = p_before.pri, false
        );
    end if;
    return coalesce(o.state = 'ready', false);
end $$;

-- A task of the lane has changed, or its limits have (p_before and p_after are null then, p_was_shut says the rest).
-- An open lane with a READY task first has a ticket; it joins the line at the back.
create or replace function @s.refresh_@n(
    c @s.tubes, p_lane text, p_at bigint, p_joined boolean, p_before @s.task, p_after @s.task,
    p_was_shut boolean default false
) returns void language plpgsql as $$
declare
    v_tickets tid[];
    v_place bigint;
    v_first @s.tickets_@n;
    v_seq bigint;
    v_pri bigint;
    v_held bigint := 0;
    v_back boolean := p_was_shut;
    v_timed boolean;
    l record;
begin
    -- A caller's own transaction may stay open for long: it must not keep others from the lane.
    -- The ticket stands before everything, so that a taker looks at once and puts it where it belongs.
    if p_joined or not @s.lane_lock_@n(p_lane) then
        -- No two stand at one place, since takers go from place to place.
        insert into @s.tickets_@n (pri, place, lane) values (-9223372036854775808, nextval('@s.places_@n'), p_lane);
        return;
    end if;
    select array_agg(ctid), nullif(min(place) filter (where at is null), 9223372036854775807), bool_or(at is not null)
        into v_tickets, v_place, v_timed
        from (select ctid, place, at from @s.tickets_@n where lane = p_lane limit 500) seen;
    c := @s.current_@n(c);
    select * into l from @s.limits_@n(c, p_lane);
    select * into v_seq, v_pri from @s.head_@n(c, p_lane);
    if v_seq is null then
        delete from @s.tickets_@n where ctid = any (v_tickets);
        return;
    end if;
    if l.concurrency is not null then
        v_held := @s.held_@n(p_lane, l.concurrency + 1);
    end if;
    if l.paused or v_held >= l.concurrency then
        delete from @s.tickets_@n where ctid = any (v_tickets);
        return;
    end if;
    if l.next_at > p_at then
        delete from @s.tickets_@n where ctid = any (v_tickets);
        insert into @s.tickets_@n (pri, place, lane, at) values (v_pri, v_seq, p_lane, l.next_at);
        return;
    end if;
    if c.lane_pick = 'order' then
        v_place := v_seq;
    else
        -- Tickets alone do not say that it stands: those of puts are there also while it is shut.
        v_back := v_back or v_place is null or v_timed
            or v_held + (p_before.state is not distinct from 'taken')::integer
                - (p_after.state is not distinct from 'taken')::integer >= l.concurrency;
        if coalesce(v_back, false) or not @s.stays_@n(c, p_lane, p_before, p_after) then
            v_place := nextval('@s.places_@n');
        end if;
    end if;
    if cardinality(v_tickets) = 1 then
        select * into v_first from @s.tickets_@n where ctid = v_tickets[1];
        if v_first.at is null and v_first.pri = v_pri and v_first.place = v_place then
            return;
        end if;
    end if;
    delete from @s.tickets_@n where ctid = any (v_tickets);
    insert into @s.tickets_@n (pri, place, lane) values (v_pri, v_place, p_lane);
end $$;

--unless adopted
-- What lanes that stand in the line with one priority would be granted, each up to so many times in turn; their locks are
-- held. Answers the tasks in the order of their grants; the lanes that stay open, by their last grant; tickets that are
-- to go; and those of lanes that belong further back. until: what stands there or behind it was left as it is.
-- special: one of them is of a sort that is granted one by one, and nothing is answered.
create or replace function @s.turns_@n(
    p_lanes text[], p_places bigint[], p_pri bigint, p_turns bigint, p_most bigint, out special boolean, out seqs bigint[],
    out open text[], out tickets tid[], out pris bigint[], out places bigint[], out lanes text[], out until bigint,
    out by_seq boolean
) language plpgsql as $$
begin
    with judged as materialized (
        select m.lane, m.place, m.i, t.tickets, h.seq, h.pri, most.n as most, held.n as held, k.lane_pick = 'order' as by_seq,
            k.lane_order <> 'skip' or coalesce(l.rate, k.lane_rate) is not null as special,
            case when k.lane_pick = 'order' then h.seq when t.place < 9223372036854775807 then t.place
                when h.seq is not null then nextval('@s.places_@n') end as stands,
            case when h.seq is null or l.paused then 0
                else least(case when h.pri < p_pri or k.lane_pick = 'order' then 1 else p_turns end, most.n - held.n) end as slots
        from unnest(p_lanes, p_places) with ordinality m (lane, place, i)
        cross join @s.tubes k
        -- offset: the lane is looked up, whatever the planner thinks of an empty table
        left join lateral (select * from @s.lanes_@n where lane = m.lane offset 0) l on true
        cross join lateral (select coalesce(l.concurrency, k.lane_concurrency)) most (n)
        cross join lateral (
            select array_agg(s.ctid) as tickets, min(s.place) filter (where s.at is null) as place
            from (select ctid, place, at from @s.tickets_@n where lane = m.lane limit 500) s
        ) t
        left join lateral (
            select x.seq, x.pri from @s.tasks_@n x where x.lane = m.lane and x.state = 'ready' order by x.pri, x.seq limit 1
        ) h on true
        cross join lateral (
            select case when most.n is null then 0 else (
                select count(*) from (select from @s.tasks_@n x where x.lane = m.lane and x.state = 'taken' limit most.n) s
            ) end
        ) held (n)
        where k.number = @n and t.place is not null
    ), ended as materialized (
        -- A lane that is sent back, or stands again by its next task, may come before others of these.
        select min(case when (j.pri, j.stands) > (p_pri, j.place) then j.stands else j.place + 1 end) as place from judged j
        where j.slots > 0 and j.pri = p_pri
            and (j.stands > j.place or (j.by_seq and coalesce(j.most - j.held > 1, true)))
    ), first as materialized (
        select j.*, j.slots <= 0 as shut, j.slots > 0 and (j.pri, j.stands) > (p_pri, j.place) as behind
        from judged j, ended where ended.place is null or j.place < ended.place
    ), granted as materialized (
        select f.lane, f.most, f.held, x.seq, row_number() over (order by x.turn, f.i) as n
        from first f cross join lateral (
            select y.seq, row_number() over (order by y.seq) as turn from (
                select z.seq from @s.tasks_@n z where z.lane = f.lane and z.state = 'ready' and z.pri = f.pri
                order by z.seq limit f.slots
            ) y
        ) x
        where not f.shut and not f.behind
    ), used as materialized (
        select g.lane, max(g.n) as n, bool_and(g.most is null or g.held + g.turns < g.most) as open from (
            select *, count(*) over (partition by lane) as turns from granted where n <= p_most
        ) g group by g.lane
    )
    select coalesce(bool_or(j.special), false), bool_or(j.by_seq), (select e.place from ended e),
            (select array_agg(g.seq order by g.n) from granted g where g.n <= p_most),
            (select array_agg(u.lane order by u.n) from used u where u.open),
            (select array_agg(k.ticket) from first f cross join unnest(f.tickets) k (ticket)
                where f.shut or f.behind or f.lane in (select u.lane from used u)),
            (select array_agg(f.pri order by f.i) from first f where f.behind),
            (select array_agg(f.stands order by f.i) from first f where f.behind),
            (select array_agg(f.lane order by f.i) from first f where f.behind)
        into special, by_seq, until, seqs, open, tickets, pris, places, lanes from judged j;
end $$;

--end
-- True when a task of the lane could be granted now.
create or replace function @s.is_open_@n(c @s.tubes, p_lane text, p_now bigint) returns boolean
language plpgsql stable as $$
declare
    l record;
begin
    select * into l from @s.limits_@n(c, p_lane);
    return not l.paused
        and coalesce(@s.held_@n(p_lane, l.concurrency) < l.concurrency, true)
        and coalesce(l.next_at <= p_now, true)
        and (select seq from @s.head_@n(c, p_lane)) is not null;
end $$;

-- Options of the lanes have changed: those that open join the line by their first READY tasks, those that stand
-- in it stay where they are. When lanes are picked otherwise from now on they stand by age.
create or replace function @s.refresh_all_@n(c_old @s.tubes, c @s.tubes, p_now bigint) returns void language plpgsql as $$
declare
    v_lane text;
    v_open boolean;
    v_none @s.task;
    v_seq bigint;
    v_pri bigint;
begin
    update @s.tubes set lanes_changed = true where number = @n;
    if c.lane_pick <> c_old.lane_pick then
        perform setval('@s.places_@n', greatest(
            (select last_value from @s.places_@n), (select last_value from @s.seqs_@n)
        ));
        update @s.tasks_@n set place = seq where lane is null;
    end if;
    for v_lane in
        select lane from (
            select distinct on (lane) lane, pri, seq from @s.tasks_@n
            where state = 'ready' and lane is not null order by lane, pri, seq
        ) firsts order by pri, seq
    loop
        v_open := @s.is_open_@n(c_old, v_lane, p_now);
        if v_open and c.lane_pick <> c_old.lane_pick and @s.lane_lock_@n(v_lane) then
            select * into v_seq, v_pri from @s.head_@n(c_old, v_lane);
            delete from @s.tickets_@n where lane = v_lane;
            -- It was open before it was locked; its last task may have been taken in between.
            insert into @s.tickets_@n (pri, place, lane) select v_pri, v_seq, v_lane where v_seq is not null;
        end if;
        perform @s.refresh_@n(c, v_lane, p_now, false, v_none, v_none, not v_open);
    end loop;
end $$;

-- Let all lanes be judged once more after an alter. While that was not committed, others still judged by the old
-- options, and it could not see what they put.
create or replace function @s.sweep_@n() returns void language plpgsql as $$
begin
    perform from @s.tubes where number = @n and lanes_changed for update skip locked;
    if found then
        insert into @s.tickets_@n (pri, place, lane)
            select -9223372036854775808, nextval('@s.places_@n'), lane from (
                select distinct lane from @s.tasks_@n where state = 'ready' and lane is not null
            ) lanes;
        update @s.tubes set lanes_changed = false where number = @n;
        perform @s.wake(@n, true, false);
    end if;
end $$;

-- Set limits of one lane; what is not in p_options stays.
create or replace function @s.configure_lane_@n(c @s.tubes, p_lane text, p_options jsonb, p_now bigint) returns void
language plpgsql as $$
declare
    v_open boolean := @s.is_open_@n(c, p_lane, p_now);
    v_none @s.task;
begin
    -- Locked from here on, so that forget_lanes() does not delete it in between.
    insert into @s.lanes_@n (lane) values (p_lane) on conflict (lane) do update set lane = excluded.lane;
    update @s.lanes_@n set
        concurrency = case when p_options ? 'concurrency' then (p_options ->> 'concurrency')::bigint else concurrency end,
        rate = case when p_options ? 'rate' then (p_options ->> 'rate')::double precision else rate end,
        burst = case when p_options ? 'burst' then (p_options ->> 'burst')::bigint else burst end,
        paused = case when p_options ? 'paused' then (p_options ->> 'paused')::boolean else paused end
        where lane = p_lane;
    delete from @s.lanes_@n
        where lane = p_lane and tat <= p_now and concurrency is null and rate is null and burst is null and not paused;
    perform @s.refresh_@n(c, p_lane, p_now, false, v_none, v_none, not v_open);
    perform @s.wake(@n, true, false);
end $$;

-- The first lane after a name that holds tasks or has settings.
create or replace function @s.next_lane_@n(p_after text) returns text language sql stable as $$
    select min(lane) from (
        (select lane from @s.tasks_@n where state = 'ready' and lane is not null and (p_after is null or lane > p_after)
            order by lane limit 1)
        union all
        (select lane from @s.tasks_@n where state = 'taken' and lane is not null and (p_after is null or lane > p_after)
            order by lane limit 1)
        union all
        (select lane from @s.lanes_@n where (p_after is null or lane > p_after)
            and (concurrency is not null or rate is not null or burst is not null or paused) order by lane limit 1)
    ) firsts
$$;

create or replace function @s.lanes_list_@n(c @s.tubes, p_limit bigint, p_after text, p_now bigint) returns table (
    lane text, ready bigint, taken bigint, concurrency bigint, rate double precision, burst bigint, paused boolean, next_at bigint
) language plpgsql stable as $$
declare
    l record;
    v_lane text := p_after;
begin
    for i in 1 .. p_limit loop
        v_lane := @s.next_lane_@n(v_lane);
        exit when v_lane is null;
        select * into l from @s.limits_@n(c, v_lane);
        return query select v_lane,
            (select count(*) from @s.tasks_@n t where t.lane = v_lane and t.state = 'ready'),
            (select count(*) from @s.tasks_@n t where t.lane = v_lane and t.state = 'taken'),
            l.concurrency, l.rate, l.burst, l.paused, case when l.next_at > p_now then l.next_at end;
    end loop;
end $$;

-- Rows of lanes that have neither settings nor anything to remember of their rate.
create or replace function @s.forget_lanes_@n(p_now bigint) returns void language sql volatile as $$
    delete from @s.lanes_@n where ctid = any (array(
        select ctid from @s.lanes_@n
        where tat <= p_now and concurrency is null and rate is null and burst is null and not paused
        limit 100 for update skip locked
    ))
$$;
