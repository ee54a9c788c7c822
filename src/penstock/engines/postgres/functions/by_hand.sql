-- Looking at tasks and tubes, and moving tasks by hand, from SQL; and who may do what. See api.sql.

create or replace function @s.peek(tube text, id text) returns @s.shown_task language sql @definer as $$
    select @s.call_act(peek.tube, 'peek', peek.id, '{}')
$$;

create or replace function @s.dig(
    tube text, id text, delay double precision default null, ttl double precision default null,
    delay_until timestamptz default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(
        dig.tube, 'dig', dig.id, @s.delay_args(dig.delay, dig.delay_until)
            || jsonb_build_object('ttl', @s.micros(dig.ttl, 'ttl'))
    )
$$;

create or replace function @s.delete(tube text, id text) returns @s.shown_task language sql @definer as $$
    select @s.call_act(delete.tube, 'delete', delete.id, '{}')
$$;

create or replace function @s.snatch(
    tube text, id text, delay double precision default null, delay_until timestamptz default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(snatch.tube, 'snatch', snatch.id, @s.delay_args(snatch.delay, snatch.delay_until))
$$;

create or replace function @s.restart(
    tube text, id text, delay double precision default null, delay_until timestamptz default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(restart.tube, 'restart', restart.id, @s.delay_args(restart.delay, restart.delay_until))
$$;

create or replace function @s.switch(
    tube text, id text, state text, delay double precision default null, delay_until timestamptz default null
) returns @s.shown_task language plpgsql @definer as $$
begin
    if switch.state is null or switch.state not in (@states) then
        perform @s.refuse('UsageError', format('state must be one of %s, got %L', concat_ws(', ', @states), switch.state));
    elsif switch.state = 'taken' then
        perform @s.refuse('UsageError', 'a task cannot be switched to taken', 'take it instead');
    elsif switch.state = 'delayed' and switch.delay is null and switch.delay_until is null then
        perform @s.refuse('UsageError', 'switching a task to delayed needs delay=');
    end if;
    return @s.call_act(
        switch.tube, 'switch', switch.id,
        @s.delay_args(switch.delay, switch.delay_until) || jsonb_build_object('state', switch.state)
    );
end $$;

-- All null when no live task has the key.
create or replace function @s.cancel(tube text, id text default null, key text default null) returns @s.shown_task
language plpgsql @definer as $$
begin
    if (cancel.id is null) = (nullif(cancel.key, '') is null) then
        perform @s.refuse('UsageError', 'cancel takes either an id or a key');
    end if;
    return @s.call_act(
        cancel.tube, 'cancel', cancel.id, jsonb_build_object('key', @s.short_text(cancel.key, 'key'))
    );
end $$;

-- A verb on many tasks; answers how many.
create or replace function @s.call_many(p_tube text, p_verb text, p_n bigint, p_args jsonb default '{}') returns bigint
language plpgsql as $$
declare
    c @s.tubes := @s.known(p_tube);
    a @s.answer;
    v_number bigint;
begin
    if p_args ->> 'ttl' is not null then
        perform @s.need(c, 'ttl', 2);
    end if;
    if coalesce(p_args ->> 'delay', p_args ->> 'delay_until') is not null then
        perform @s.need(c, 'delay', 4);
    end if;
    for a in select * from @s.act_many(c.number, null, null, null, null, false, p_verb, p_n, jsonb_strip_nulls(p_args)::json) loop
        if a.kind = 'error' and a.info ~ '^[A-Z]' then
            perform @s.refuse_answer(c, a, null);
        end if;
        v_number := a.at;
    end loop;
    perform pg_notify('@channel', c.number::text);
    return v_number;
end $$;

create or replace function @s.whole(p_n bigint, p_least bigint, p_name text) returns bigint language plpgsql as $$
begin
    if p_n is null or p_n < p_least then
        perform @s.refuse('UsageError', format(
            '%s must be a whole number from %s to 2**63-1, got %s', p_name, p_least, coalesce(p_n::text, 'None')
        ));
    end if;
    return p_n;
end $$;

create or replace function @s.kick(tube text, n bigint default 1) returns bigint language sql @definer as $$
    select @s.call_many(kick.tube, 'kick', @s.whole(kick.n, 0, 'n'))
$$;

-- All buried tasks, or the first n.
create or replace function @s.plow(
    tube text, n bigint default null, delay double precision default null, ttl double precision default null,
    delay_until timestamptz default null
) returns bigint language sql @definer as $$
    select @s.call_many(
        plow.tube, 'kick', case when plow.n is not null then @s.whole(plow.n, 0, 'n') end,
        @s.delay_args(plow.delay, plow.delay_until) || jsonb_build_object('ttl', @s.micros(plow.ttl, 'ttl'))
    )
$$;

create or replace function @s.add_retries(tube text, n bigint) returns bigint language sql @definer as $$
    select @s.call_many(add_retries.tube, 'add_retries', @s.whole(add_retries.n, 1, 'n'))
$$;

create or replace function @s.release_all(tube text) returns bigint language sql @definer as $$
    select @s.call_many(release_all.tube, 'release_all', null)
$$;

-- -- looking --------------------------------------------------------------------------------------------

-- Tasks of a tube, or of all, in the order in which they were put. after: the id of the last one seen.
create or replace function @s.tasks(
    tube text default null, state text default null, n bigint default 100, after text default null
) returns setof @s.shown_task language plpgsql @definer as $$
declare
    c @s.tubes;
    a @s.answer;
    v_after text;
begin
    if tasks.tube is not null then
        perform @s.known(tasks.tube);
    end if;
    if tasks.state not in (@states) then
        perform @s.refuse('UsageError', format('state must be one of %s, got %L', concat_ws(', ', @states), tasks.state));
    elsif tasks.after is not null and tasks.tube is null then
        perform @s.refuse('UsageError', 'after needs the tube that the task is in');
    end if;
    perform @s.whole(tasks.n, 1, 'n');
    for c in select * from @s.tubes x where tasks.tube is null or x.name = tasks.tube order by x.name collate "C" loop
        v_after := case when tasks.after is not null then @s.stored_id(c, tasks.after) end;
        for a in
            select * from @s.list_tasks(
                c.number, null, null, null, tasks.state, tasks.n,
                case when @s.by_seq(c) then v_after::bigint end,
                case when not @s.by_seq(c) then v_after end
            )
        loop
            if a.kind = 'task' then
                return next @s.shown(c, @s.filled(a));
            elsif a.kind = 'error' and a.info ~ '^TaskNotFound' then
                perform @s.refuse_answer(c, a, tasks.after, p_verb => 'tasks');
            end if;
        end loop;
    end loop;
end $$;

create or replace function @s.tubes() returns table (
    name text, kind text, payload text, id text, temporary boolean, paused boolean, capacity bigint, ttl double precision,
    ttr double precision, max_attempts bigint, concurrency bigint, lane_concurrency bigint, lane_rate double precision,
    max_payload bigint, history boolean
) language sql stable @definer as $$
    select t.name, t.kind, t.payload, t.id, t.temporary, t.paused, t.capacity, @s.seconds(t.ttl), @s.seconds(t.ttr),
        t.max_attempts, t.concurrency, t.lane_concurrency, t.lane_rate, t.max_payload, t.history
    from @s.tubes t order by t.name collate "C"
$$;

-- Counters of a tube, or of all. done and calls count from the beginning of the run.
create or replace function @s.statistics(tube text default null) returns table (
    name text, ready bigint, taken bigint, delayed bigint, buried bigint, total bigint, kept bigint, done bigint, calls jsonb
) language plpgsql @definer as $$
declare
    v_number integer;
begin
    if statistics.tube is not null then
        v_number := (@s.known(statistics.tube)).number;
    end if;
    return query
        with named as (
            select a.tube as number, a.info as what, a.at as n from @s.read_statistics(null, null, null, v_number) a
            where a.kind = 'error'
        ), summed as (
            select x.number, jsonb_object_agg(x.what, x.n) as counts from named x group by x.number
        )
        select t.name,
            coalesce((s.counts ->> 'ready')::bigint, 0), coalesce((s.counts ->> 'taken')::bigint, 0),
            coalesce((s.counts ->> 'delayed')::bigint, 0), coalesce((s.counts ->> 'buried')::bigint, 0),
            (select coalesce(sum((s.counts ->> live)::bigint), 0)::bigint from unnest(array['ready', 'taken', 'delayed', 'buried']) live),
            coalesce((s.counts ->> 'done')::bigint, 0), coalesce((s.counts ->> 'ended')::bigint, 0),
            (select coalesce(jsonb_object_agg(substr(e.key, 3), e.value), '{}') from jsonb_each(s.counts) e where e.key like 'c:%')
        from @s.tubes t left join summed s on s.number = t.number
        where v_number is null or t.number = v_number order by t.name collate "C";
end $$;

create or replace function @s.lanes(tube text, n bigint default 100, after text default null) returns table (
    lane text, ready bigint, taken bigint, concurrency bigint, rate double precision, burst bigint, paused boolean,
    next_at timestamptz
) language plpgsql @definer as $$
declare
    c @s.tubes := @s.known(lanes.tube);
begin
    perform @s.need(c, 'lanes', 6);
    perform @s.whole(lanes.n, 1, 'n');
    perform @s.settle_tubes(@s.now_us(), null, null, c.number);
    return query execute format(
        'select l.lane, l.ready, l.taken, l.concurrency, l.rate, l.burst, l.paused, @s.date(l.next_at)
         from @s.lanes_list_%s($1, $2, $3, @s.now_us()) l', c.number
    ) using c, lanes.n, lanes.after;
end $$;

-- -- roles ----------------------------------------------------------------------------------------------

-- What each right lets a role call. [25]
create or replace function @s.functions_of(p_right text) returns text[] language plpgsql stable as $$
begin
    return case p_right
        when 'read' then array['peek', 'tasks', 'statistics', 'tubes', 'lanes']
        when 'put' then array['put', 'put_many', 'put_entries', 'cancel']
        when 'take' then array['new_session', 'keep_alive', 'end_session', 'take', 'ack', 'release', 'bury', 'fail', 'touch']
        when 'admin' then @s.functions_of('read') || @s.functions_of('put') || @s.functions_of('take') || array[
            'kick', 'dig', 'plow', 'delete', 'restart', 'snatch', 'switch', 'add_retries', 'release_all'
        ]
    end;
end $$;

create or replace function @s.change_right(p_grant boolean, p_role text, p_right text) returns void language plpgsql as $$
declare
    v_function regprocedure;
begin
    if @s.functions_of(p_right) is null then
        perform @s.refuse('UsageError', format('a right is one of read, put, take, admin, got %L', p_right));
    end if;
    if p_grant then
        execute format('grant usage on schema @s to %I', p_role);
    end if;
    for v_function in
        select p.oid::regprocedure from pg_proc p
        where p.pronamespace = '@s'::regnamespace and p.proname = any (@s.functions_of(p_right))
    loop
        execute format(
            case when p_grant then 'grant execute on function %s to %I' else 'revoke execute on function %s from %I' end,
            v_function, p_role
        );
    end loop;
end $$;

-- Let a role read, put, take, or do all by hand (admin); an owner of the schema calls this.
create or replace function @s.allow(role_name text, right_name text) returns void language sql as $$
    select @s.change_right(true, role_name, right_name)
$$;

create or replace function @s.forbid(role_name text, right_name text) returns void language sql as $$
    select @s.change_right(false, role_name, right_name)
$$;
