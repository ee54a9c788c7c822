-- One task. Answers it with its outcome in info, or an error.
create or replace function @s.put_@n(
    c @s.tubes, p_now bigint, p_joined boolean, p_listen boolean, p_item integer, p_data json, p_body bytea, p_pri bigint,
    p_ttl bigint, p_derived boolean, p_ttr bigint, p_delay bigint, p_lane text, p_key text, p_on_conflict text, p_put_id text,
    p_id text, p_max_attempts bigint, p_keep bigint, p_repeat bigint
) returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
    o @s.task;
    v_steps @s.step[];
    v_inserted boolean;
    v_full boolean;
begin
    -- Round again when somebody else puts the same key in this very moment.
    for round in 1 .. 10 loop
        if p_put_id is not null then
            select * into o from @s.tasks_@n where put_id = p_put_id;
            if found then
                select (a).seq into t.seq from @s.settled_of_@n(c, o, p_now, p_joined, p_listen) a where (a).kind = 'task';
                select * into o from @s.tasks_@n where put_id = p_put_id;
                if found then
                    return next @s.answer('task', @n, 'existing', p_now, o, p_item);
                    return;
                end if;
            end if;
        end if;
        if p_key is not null then
            select * into o from @s.tasks_@n where key = p_key and state <> 'done';
            if found then
                perform @s.settled_of_@n(c, o, p_now, p_joined, p_listen);
                select * into o from @s.tasks_@n where key = p_key and state <> 'done';
                -- What stays as it is needs no lock, and whoever holds it for long is not waited for.
                if found and (
                    (p_on_conflict = 'replace' and o.state <> 'taken')
                    or (p_on_conflict = 'restart' and o.state not in ('ready', 'taken'))
                ) then
                    select * into o from @s.tasks_@n where key = p_key and state <> 'done' for update;
                end if;
                if found then
                    return query select * from @s.conflict_@n(
                        c, o, p_now, p_joined, p_listen, p_item, p_data, p_body, p_pri, p_ttl, p_derived, p_ttr, p_delay,
                        p_lane, p_key, p_on_conflict, p_put_id, p_max_attempts, p_keep, p_repeat
                    );
                    return;
                end if;
            end if;
        end if;
--if ids
        if p_id is not null and exists (select from @s.tasks_@n where id = p_id) then
            return next @s.error('DuplicateKey', @n, 'id', p_item);
            return;
        end if;
--end
        if c.capacity is not null then
            select coalesce(sum(case when target in ('ready', 'taken', 'delayed', 'buried') then n else 0 end), 0)
                - coalesce(sum(case when source in ('ready', 'taken', 'delayed', 'buried') then n else 0 end), 0) >= c.capacity
                into v_full from @s.counts_@n;
            -- In a caller's transaction what is over stays where it is, but takes no room.
            if v_full and p_joined then
                select coalesce(sum(case when target in ('ready', 'taken', 'delayed', 'buried') then n else 0 end), 0)
                    - coalesce(sum(case when source in ('ready', 'taken', 'delayed', 'buried') then n else 0 end), 0)
                    - (select count(*) from @s.tasks_@n x where x.due_at <= p_now and x.due_rank = 1) >= c.capacity
                    into v_full from @s.counts_@n;
            end if;
            if v_full then
                return next @s.error('TubeFull', @n, c.capacity::text, p_item);
                return;
            end if;
        end if;
        t := @s.fresh(c, p_now, p_pri, p_ttl, p_derived, p_ttr, p_delay, p_lane, p_max_attempts, p_repeat);
        t.data := p_data;
        t.body := p_body;
        t.key := p_key;
        t.put_id := p_put_id;
        t.keep := p_keep;
        perform pg_current_xact_id();  -- before the number: see tube/marks.sql
--if time64
        t.seq := @s.next_seq_@n(p_now * 1000);
--end
--unless time64
        t.seq := nextval('@s.seqs_@n');
--end
--if ids
        t.id := coalesce(p_id, '"' || gen_random_uuid() || '"');
--end
--if adopted
        t := @s.keyed_@n(t, p_id, p_now);
--end
--if lanes
        t.place := case when c.lane_pick = 'turns' and t.lane is null then nextval('@s.places_@n') else t.seq end;
--end
        t := @s.timed(t);
        insert into @s.tasks_@n values (t.*) on conflict do nothing;
        if found then
            exit;
        end if;
        t := null;
    end loop;
    if t.seq is null then
        return next @s.error('DuplicateKey', @n, 'key', p_item);
        return;
    end if;
    insert into @s.counts_@n values (1, null, t.state, 'put');
    if c.history then
        perform @s.record(c, o, row('put', p_now, null, t)::@s.step);
    end if;
--if lanes
    if t.lane is not null and t.state = 'ready' then
        perform @s.put_ticket_@n(c, t.lane, t.pri, t.seq, p_now);
    end if;
--end
    perform @s.wake(@n, t.state = 'ready', false);
    if p_listen then
        return query select * from @s.announced(@n, array[row('put', p_now, null, t)::@s.step]);
    end if;
    return next @s.answer('task', @n, 'new', p_now, t, p_item);
end $$;

-- Do what is due for a task that was found without a lock.
create or replace function @s.settled_of_@n(c @s.tubes, o @s.task, p_now bigint, p_joined boolean, p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
begin
    if o.due_at <= p_now then
        select * into t from @s.tasks_@n where seq = o.seq for update skip locked;
        if found then
            return query select * from @s.settled_@n(c, t, p_now, p_joined, p_listen);
        end if;
    end if;
end $$;

-- A live task has the key already. [16]
create or replace function @s.conflict_@n(
    c @s.tubes, o @s.task, p_now bigint, p_joined boolean, p_listen boolean, p_item integer, p_data json, p_body bytea,
    p_pri bigint, p_ttl bigint, p_derived boolean, p_ttr bigint, p_delay bigint, p_lane text, p_key text, p_on_conflict text,
    p_put_id text, p_max_attempts bigint, p_keep bigint, p_repeat bigint
) returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
    v_steps @s.step[];
    v_outcome text;
begin
    if p_on_conflict = 'ignore' or (p_on_conflict = 'restart' and o.state in ('ready', 'taken')) then
        return next @s.answer('task', @n, 'existing', p_now, o, p_item);
        return;
    elsif p_on_conflict = 'restart' then
        v_steps := @s.rule_restart(o, p_now, 0);
        v_outcome := 'restarted';
    elsif p_on_conflict = 'replace' and o.state <> 'taken' then
        t := @s.fresh(c, p_now, p_pri, p_ttl, p_derived, p_ttr, p_delay, p_lane, p_max_attempts, p_repeat);
        t.data := p_data;
        t.body := p_body;
        t.key := p_key;
        t.put_id := p_put_id;
        t.keep := p_keep;
        t.seq := o.seq;
        t.id := o.id;
        v_steps := array[row('replace', p_now, null, t)::@s.step];
        v_outcome := 'replaced';
    else
        return next @s.error('DuplicateKey', @n, 'key ' || o.state, p_item);
        return;
    end if;
    t := @s.save_@n(c, o, v_steps, p_joined);
    if v_outcome = 'replaced' then
        update @s.tasks_@n set data = p_data, body = p_body where seq = t.seq;
--if lanes
        if t.lane is null and o.lane is not null then
            update @s.tasks_@n set place = case when c.lane_pick = 'turns' then nextval('@s.places_@n') else seq end
                where seq = t.seq;
        end if;
--end
    end if;
    if p_listen then
        return query select * from @s.announced(@n, v_steps);
    end if;
    return next @s.answer('task', @n, v_outcome, p_now, t, p_item);
end $$;
--if time64

-- A number of at least this, above all before. The lock is held for this moment alone, not for the transaction.
create or replace function @s.next_seq_@n(p_least bigint) returns bigint language plpgsql as $$
declare
    v_last bigint;
begin
    perform pg_advisory_lock(@lock);
    select case when is_called then last_value else 0 end into v_last from @s.seqs_@n;
    v_last := setval('@s.seqs_@n', greatest(v_last + 1, p_least));
    perform pg_advisory_unlock(@lock);
    return v_last;
end $$;
--end
--if lanes

-- The ticket of a task that was put. It locks nothing and waits for nobody. A lane that its rate has shut gets a
-- dated one, for the timer, beside one that is judged at once: the limits may be others when this is committed.
-- p_first: the first of the tasks that are put together; p_turn: the place of the lane's first, should it need one.
create or replace function @s.put_ticket_@n(
    c @s.tubes, p_lane text, p_pri bigint, p_seq bigint, p_now bigint, p_first bigint default null, p_turn bigint default null
) returns void language plpgsql as $$
declare
    l record;
    o record;
    v_place bigint := p_seq;
begin
    select * into l from @s.limits_@n(c, p_lane);
    if l.next_at > p_now then
        insert into @s.tickets_@n (pri, place, lane, at) values (p_pri, p_seq, p_lane, l.next_at);
    end if;
    if c.lane_pick = 'turns' then
        select min(place) into v_place from @s.tickets_@n where lane = p_lane and at is null;
        if c.lane_order = 'strict' then
            select t.pri, t.state into o from @s.tasks_@n t
                where t.lane = p_lane and t.state in ('ready', 'delayed', 'buried') and t.seq < coalesce(p_first, p_seq)
                order by t.pri, t.seq limit 1;
            -- Behind one that is delayed or buried it is to be judged, but has no place.
            v_place := case when o.state = 'ready' then v_place when o.pri <= p_pri then 9223372036854775807 end;
        end if;
        if v_place is null then
            v_place := coalesce(p_turn, nextval('@s.places_@n'));
        end if;
    end if;
    insert into @s.tickets_@n (pri, place, lane) values (p_pri, v_place, p_lane);
end $$;
--end

-- Store tasks, in order. p_items is an array of objects with what was given of each; p_bodies their bytes, if any.
create or replace function @s.puts_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_joined boolean, p_items json,
    p_bodies bytea[]
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    i record;
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return next @s.error('Stale', @n, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if not p_joined and c.capacity is not null then
        perform pg_advisory_xact_lock(@lock + 3);
    end if;
    if not p_joined and (c.capacity is not null or c.history or v_listen) then
        return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
        return query select * from @s.settle_@n(c, v_now, 1000, v_listen);
    end if;
    for i in
        select * from json_to_recordset(p_items) as j (
            item integer, data json, pri bigint, ttl bigint, derived boolean, ttr bigint, delay bigint, delay_until bigint,
            lane text, key text, on_conflict text, put_id text, id text, max_attempts bigint, keep bigint, repeat bigint
        )
    loop
        return query select * from @s.put_@n(
            c, v_now, p_joined, v_listen, i.item, coalesce(i.data, case when p_bodies is null then 'null'::json end), p_bodies[i.item + 1], i.pri, i.ttl, coalesce(i.derived, false), i.ttr,
            greatest(0, coalesce(i.delay, i.delay_until - v_now, 0)), i.lane, i.key, i.on_conflict, i.put_id, i.id,
            i.max_attempts, i.keep, i.repeat
        );
    end loop;
end $$;

-- The ordinary case of many tasks, all at once: no keys, ids or put ids of the caller's, no capacity, no history,
-- nobody listens. All but data, pri and lane is the same for all. Answers their numbers, in order.
create or replace function @s.bulk_@n(
    p_version bigint, p_now bigint, p_relaxed boolean, p_joined boolean, p_data text[], p_bodies bytea[], p_pris bigint[],
    p_lanes text[], p_pri bigint, p_ttl bigint, p_derived boolean, p_ttr bigint, p_delay bigint, p_delay_until bigint,
    p_max_attempts bigint, p_keep bigint, p_repeat bigint, out at bigint, out seqs bigint[]
) language plpgsql @settings as $$
declare
    c @s.tubes;
    t @s.task;
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    at := @s.now_us(p_now);
    t := @s.timed(@s.fresh(
        c, at, p_pri, p_ttl, coalesce(p_derived, false), p_ttr, greatest(0, coalesce(p_delay, p_delay_until - at, 0)), null,
        p_max_attempts, p_repeat
    ));
    perform pg_current_xact_id();  -- before the numbers: see tube/marks.sql
    with given as (
        select data, body, coalesce(pri, t.pri) as pri, coalesce(nullif(lane, ''), t.lane) as lane, item
        from unnest(p_data, p_bodies, p_pris, p_lanes) with ordinality g (data, body, pri, lane, item)
    ), numbered as (
--if time64
        select *, @s.next_seq_@n(at * 1000) as seq from given order by item
--end
--unless time64
        select *, nextval('@s.seqs_@n') as seq from given order by item
--end
    ), stored as (
        insert into @s.tasks_@n (
            seq, id, state, data, body, pri, lane, attempt, failures, max_attempts, ttl, ttr, created_at, ready_at,
            expires_at, repeat, keep, cancel_asked, due_at, due_rank, place
        )
        select g.seq,
--if ids
            '"' || gen_random_uuid() || '"',
--end
--unless ids
            null,
--end
            t.state, g.data::json, g.body, g.pri, g.lane, 0, 0, t.max_attempts, t.ttl, t.ttr, at, t.ready_at, t.expires_at,
            p_repeat, p_keep, false, t.due_at, t.due_rank,
--if lanes
            case when c.lane_pick = 'turns' then nextval('@s.places_@n') else g.seq end
--end
--unless lanes
            null
--end
        from numbered g
        returning seq, pri, lane, place
--if lanes
    ), tickets as (
        select @s.put_ticket_@n(c, f.lane, f.pri, f.seq, bulk_@n.at, f.first, f.turn) from (
            select distinct on (s.lane) s.lane, s.pri, s.seq, min(s.seq) over () as first,
                case when c.lane_pick = 'turns' then min(s.place) over (partition by s.lane) end as turn from stored s
            where s.lane is not null and t.state = 'ready' order by s.lane, s.pri, s.seq
        ) f order by f.seq
--end
    )
    select array_agg(s.seq order by s.seq) into seqs from stored s
--if lanes
        cross join (select count(*) from tickets) posted
--end
    ;
    insert into @s.counts_@n values (cardinality(seqs), null, t.state, 'put');
    perform @s.wake(@n, t.state = 'ready', false);
end $$;

-- The ordinary case of one task, as short as it can be.
create or replace function @s.put1_@n(
    p_version bigint, p_now bigint, p_relaxed boolean, p_data json, p_body bytea, p_pri bigint, p_ttl bigint,
    p_derived boolean, p_ttr bigint, p_delay bigint, p_delay_until bigint, p_lane text, p_max_attempts bigint, p_keep bigint,
    p_repeat bigint, out at bigint, out seq bigint
) language plpgsql @settings as $$
declare
    c @s.tubes;
    t @s.task;
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    at := @s.now_us(p_now);
    t := @s.timed(@s.fresh(
        c, at, p_pri, p_ttl, p_derived, p_ttr, greatest(0, coalesce(p_delay, p_delay_until - at, 0)), p_lane,
        p_max_attempts, p_repeat
    ));
    perform pg_current_xact_id();  -- before the number: see tube/marks.sql
--if time64
    t.seq := @s.next_seq_@n(at * 1000);
--end
--unless time64
    t.seq := nextval('@s.seqs_@n');
--end
    t.data := p_data;
    t.body := p_body;
    t.keep := p_keep;
--if lanes
    t.place := case when c.lane_pick = 'turns' and t.lane is null then nextval('@s.places_@n') else t.seq end;
    if t.lane is not null and t.state = 'ready' then
        perform @s.put_ticket_@n(c, t.lane, t.pri, t.seq, at);
    end if;
--end
    insert into @s.tasks_@n values (t.*);
    insert into @s.counts_@n values (1, null, t.state, 'put');
    if t.state = 'ready' and exists (
        select from @s.waits w where w.tube = @n and w.takes and w.until > clock_timestamp()
    ) then
        perform pg_notify('@channel', '@n');
    end if;
    seq := t.seq;
end $$;
--unless lanes

-- The same where there is nothing to say but data and pri, in a tube whose tasks know no time.
create or replace function @s.put0_@n(
    p_version bigint, p_now bigint, p_relaxed boolean, p_data json, p_body bytea, p_pri bigint, out at bigint, out seq bigint
) language plpgsql @settings as $$
declare
    v_pri bigint;
    v_most bigint;
    v_wake boolean;
    v_now bigint;
begin
    -- The transaction has its id before the task has its number: see tube/marks.sql.
    select coalesce(p_pri, c.pri), c.max_attempts, pg_current_xact_id() is null or exists (
            select from @s.waits w where w.tube = @n and w.takes and w.until > clock_timestamp()
        ) into v_pri, v_most, v_wake
        from @s.tubes c where c.number = @n and c.version = p_version;
    if not found then
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    v_now := @s.now_us(p_now);
    insert into @s.tasks_@n as x (state, data, body, pri, attempt, failures, max_attempts, created_at, ready_at, cancel_asked)
        values ('ready', p_data, p_body, v_pri, 0, 0, v_most, v_now, v_now, false) returning x.seq into seq;
    insert into @s.counts_@n values (1, null, 'ready', 'put');
    if v_wake then
        perform pg_notify('@channel', '@n');
    end if;
    at := v_now;
end $$;
--end
