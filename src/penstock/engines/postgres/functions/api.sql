-- The queue for psql, for triggers and for other languages: by the names of tubes, in seconds and dates. docs/sql.md
-- Those that are `@definer` are for roles that were granted them: they run as the owner, so they check everything.

-- Store tasks, all or none: an error undoes what the statement did.
create or replace function @s.put_items(p_tube text, p_data jsonb[], p_bodies bytea[], p_options jsonb[])
returns table (id text, outcome text) language plpgsql as $$
declare
    c @s.tubes := @s.known(p_tube);
    v_items jsonb[];
    a @s.answer;
begin
    if cardinality(p_options) > 100000 then
        perform @s.refuse('UsageError', format('put_many takes at most 100000 items a call, got %s', cardinality(p_options)),
            'put them in parts');
    end if;
    perform @s.refuse_adopted(c, 'insert a row into it: that puts a task');
    select array_agg(@s.item(c, i.n - 1, i.data, i.body, i.options) order by i.n) into v_items
        from unnest(p_data, p_bodies, p_options) with ordinality i (data, body, options, n);
    for a in execute format('select * from @s.puts_%s(null, null, null, null, false, true, $1, $2)', c.number)
        using to_json(v_items), p_bodies
    loop
        if a.kind = 'error' then
            perform @s.refuse_answer(c, a, p_options[a.item + 1] ->> 'id', p_options[a.item + 1] ->> 'key');
        elsif a.kind = 'task' then
            id := @s.shown_id(a.seq, a.id);
            outcome := a.info;
            return next;
        end if;
    end loop;
    -- Somebody may begin to wait between now and the commit, so nobody is asked who does.
    perform pg_notify('@channel', c.number::text);
end $$;

create or replace function @s.put(
    tube text, data jsonb default null, lane text default null, pri bigint default null, delay double precision default null,
    ttl double precision default null, ttr double precision default null, key text default null,
    on_conflict text default 'error', put_id text default null, id text default null, max_attempts bigint default null,
    keep double precision default null, repeat double precision default null, delay_until timestamptz default null,
    body bytea default null
) returns text language sql @definer as $$
    select p.id from @s.put_items(put.tube, array[put.data], array[put.body], array[jsonb_strip_nulls(jsonb_build_object(
        'lane', put.lane, 'pri', put.pri, 'delay', put.delay, 'ttl', put.ttl, 'ttr', put.ttr, 'key', put.key,
        'on_conflict', put.on_conflict, 'put_id', put.put_id, 'id', put.id, 'max_attempts', put.max_attempts,
        'keep', put.keep, 'repeat', put.repeat, 'delay_until', put.delay_until
    ))]) p
$$;

-- Each element of an array is the data of a task; the options are those of all.
create or replace function @s.put_many(
    tube text, items jsonb default null, lane text default null, pri bigint default null, delay double precision default null,
    ttl double precision default null, ttr double precision default null, max_attempts bigint default null,
    keep double precision default null, repeat double precision default null, delay_until timestamptz default null,
    bodies bytea[] default null
) returns table (id text, outcome text) language sql @definer as $$
    select p.* from @s.elements(put_many.items, put_many.bodies is null) e, @s.put_items(
        put_many.tube, e.list, put_many.bodies, array_fill(jsonb_strip_nulls(jsonb_build_object(
            'lane', put_many.lane, 'pri', put_many.pri, 'delay', put_many.delay, 'ttl', put_many.ttl, 'ttr', put_many.ttr,
            'max_attempts', put_many.max_attempts, 'keep', put_many.keep, 'repeat', put_many.repeat,
            'delay_until', put_many.delay_until
        )), array[coalesce(cardinality(e.list), cardinality(put_many.bodies))])
    ) p
$$;

-- Each element is an object: data, and options with the names that put has.
create or replace function @s.put_entries(tube text, entries jsonb) returns table (id text, outcome text)
language sql @definer as $$
    select p.* from @s.elements(put_entries.entries, true) e, @s.put_items(
        put_entries.tube, array(select o -> 'data' from unnest(e.list) o), null, e.list
    ) p
$$;

create or replace function @s.elements(p_items jsonb, p_needed boolean, out list jsonb[]) language plpgsql as $$
begin
    if jsonb_typeof(p_items) is distinct from 'array' and (p_needed or p_items is not null) then
        perform @s.refuse('UsageError', format(
            'put_many takes an array of items, not %s', coalesce('one ' || jsonb_typeof(p_items), 'NULL')
        ), 'pass ''[..]'' or use put');
    elsif p_items is not null then
        select coalesce(array_agg(e.item order by e.n), '{}') into list
            from jsonb_array_elements(p_items) with ordinality e (item, n);
    end if;
end $$;

-- -- leases ---------------------------------------------------------------------------------------------

create or replace function @s.new_session(name text default null, ttl double precision default 30) returns uuid
language plpgsql @definer as $$
declare
    v_uuid uuid := gen_random_uuid();
    v_ttl bigint := @s.micros(new_session.ttl, 'session_ttl');
begin
    if coalesce(v_ttl, 0) = 0 then
        perform @s.refuse('UsageError', format('session_ttl must be more than 0 seconds, got %s', new_session.ttl));
    end if;
    perform @s.open_session(null, null, null, v_uuid, coalesce(
        @s.short_text(new_session.name, 'name'), coalesce(nullif(current_setting('application_name'), ''), session_user)
            || ':' || pg_backend_pid()
    ), v_ttl, false);
    return v_uuid;
end $$;

create or replace function @s.living(p_session uuid) returns @s.sessions language plpgsql as $$
declare
    h @s.sessions;
begin
    if p_session is null then
        perform @s.refuse('UsageError', 'session must be the uuid of a session', 'new_session() makes one');
    end if;
    select * into h from @s.sessions where uuid = p_session and expires_at > @s.now_us();
    if not found then
        perform @s.refuse('SessionExpired', 'no session with this uuid lives: it is unknown or has ended');
    end if;
    return h;
end $$;

-- A sign of life. Answers the tokens of tasks that the session holds and was asked to stop.
create or replace function @s.keep_alive(session uuid) returns bigint[] language plpgsql @definer as $$
declare
    h @s.sessions := @s.living(keep_alive.session);
begin
    return array(
        select a.at from @s.extend_session(null, array[h.uuid], null, h.uuid, h.name, h.ttl, h.direct, null) a
        where a.info = 'cancelled'
    );
end $$;

-- Give back what the session holds; answers how many tasks.
create or replace function @s.end_session(session uuid) returns bigint language plpgsql @definer as $$
declare
    h @s.sessions := @s.living(end_session.session);
begin
    return (select coalesce(max(a.at), 0) from @s.close_session(null, array[h.uuid], null, h.uuid) a where a.info = 'given');
end $$;

create or replace function @s.take(
    tube text, n bigint default 1, session uuid default null, ttr double precision default null, lane text default null
) returns setof @s.shown_task language plpgsql @definer as $$
declare
    c @s.tubes := @s.known(take.tube);
    h @s.sessions := @s.living(take.session);
    v_ttr bigint := @s.micros(take.ttr, 'ttr');
    v_again boolean;
    a @s.answer;
begin
    if take.n is null or take.n not between 1 and 100000 then
        perform @s.refuse('UsageError', format('n must be a whole number from 1 to 100000, got %s', coalesce(take.n::text, 'NULL')));
    elsif v_ttr is not null then
        perform @s.need(c, 'ttr', 3);
    end if;
    if take.lane is not null then
        perform @s.need(c, 'lane', 6);
        perform @s.short_text(take.lane, 'lane');
    end if;
    update @s.sessions s set expires_at = greatest(s.expires_at, @s.now_us() + s.ttl) where s.number = h.number;
    for attempt in 1 .. 1000 loop
        v_again := false;
        for a in execute format(
            'select * from @s.take_%s(null, null, $1, null, false, $2, $3, $4, $5, $6, $7, $8, false)', c.number
        ) using array[h.uuid], h.uuid, h.name, h.ttl, h.direct, take.n, v_ttr, take.lane loop
            if a.kind = 'task' then
                return next @s.shown(c, @s.filled(a), true);
                take.n := take.n - 1;
            elsif a.kind = 'error' and a.info = 'again' then
                v_again := true;
            elsif a.kind = 'error' then
                perform @s.refuse_answer(c, a, null);
            end if;
        end loop;
        exit when not v_again or take.n = 0;
    end loop;
end $$;

create or replace function @s.ack(
    tube text, id text, token bigint default null, session uuid default null, result jsonb default null,
    keep double precision default null
) returns @s.shown_task language plpgsql @definer as $$
declare
    c @s.tubes := @s.known(ack.tube);
    v_id text := @s.stored_id(c, ack.id);
    v_keep bigint := @s.micros(ack.keep, 'keep');
    -- A session that is over holds nothing, whether or not somebody has noticed yet.
    v_session uuid := (select s.uuid from @s.sessions s where s.uuid = ack.session and s.expires_at > @s.now_us());
    a @s.answer;
    v_task @s.answer;
begin
    for a in execute format(
        case when c.kind = 'adopted' then 'select * from @s.ack_rows_%s(null, null, null, null, false, true, $1, $6)'
        else 'select * from @s.ack_%s(null, null, null, null, false, true, $1, $2, $3, $4, $5)' end, c.number
    )
        using v_session, array[v_id], array[ack.token], array[ack.result::text], array[v_keep],
            json_build_array(json_strip_nulls(json_build_object(
                'item', 1, 'id', v_id, 'token', ack.token, 'result', ack.result::text, 'keep', v_keep
            )))
    loop
        if a.kind = 'task' then
            v_task := a;
        elsif a.kind = 'error' and a.info = 'gone' then
            v_task.id := case when not @s.by_seq(c) then v_id end;
            v_task.seq := case when @s.by_seq(c) then v_id end;
            v_task.state := 'done';
            v_task.reason := 'success';
            v_task.done_at := a.at;
        elsif a.kind = 'error' then
            perform @s.refuse_answer(c, a, ack.id);
        end if;
    end loop;
    perform pg_notify('@channel', c.number::text);
    return @s.shown(c, @s.filled(v_task));
end $$;

-- A verb on one task. p_args: what was given, in microseconds.
create or replace function @s.call_act(
    p_tube text, p_verb text, p_id text, p_args jsonb, p_token bigint default null, p_session uuid default null,
    p_body bytea default null
) returns @s.shown_task language plpgsql as $$
declare
    c @s.tubes := @s.known(p_tube);
    v_id text;
    a @s.answer;
    v_task @s.answer;
begin
    if p_id is not null or p_args ->> 'key' is null then
        v_id := @s.stored_id(c, p_id);
    end if;
    perform @s.need(c, o.option, o.feature) from (values
        ('pri', p_args ->> 'pri', 1), ('ttl', p_args ->> 'ttl', 2), ('touch', p_args ->> 'by', 3),
        ('delay', p_args ->> 'delay', 4), ('delay', p_args ->> 'delay_until', 4)
    ) o (option, value, feature) where o.value is not null;
    if p_args ->> 'data' is not null or p_body is not null then
        perform @s.refuse_adopted(c, 'update its row');
        perform @s.check_data(c, (p_args ->> 'data')::jsonb, p_body);
    end if;
    for a in
        select * from @s.act(
            c.number, null, null, null, null, false, p_verb, v_id, p_token, p_session,
            jsonb_strip_nulls(p_args)::json, p_body
        )
    loop
        if a.kind = 'error' and a.info ~ '^[A-Z]' then
            perform @s.refuse_answer(c, a, p_id, p_verb => p_verb);
        elsif a.kind = 'task' then
            v_task := a;
        end if;
    end loop;
    if p_verb <> 'peek' then
        perform pg_notify('@channel', c.number::text);
    end if;
    return case when v_task.seq is not null then
        @s.shown(c, @s.filled(v_task), p_token is not null and v_task.token = p_token)
    end;
end $$;

create or replace function @s.delay_args(p_delay double precision, p_until timestamptz) returns jsonb
language sql as $$
    select jsonb_build_object('delay', @s.micros(p_delay, 'delay', true), 'delay_until', @s.moment(p_until))
$$;

create or replace function @s.release(
    tube text, id text, token bigint default null, session uuid default null, delay double precision default null,
    pri bigint default null, ttl double precision default null, data jsonb default null, refund boolean default false,
    delay_until timestamptz default null, body bytea default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(release.tube, 'release', release.id, jsonb_build_object(
        'pri', release.pri, 'ttl', @s.micros(release.ttl, 'ttl'), 'data', release.data::text, 'refund', release.refund
    ) || @s.delay_args(release.delay, release.delay_until), release.token, release.session, release.body)
$$;

create or replace function @s.bury(
    tube text, id text, token bigint default null, session uuid default null, error text default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(bury.tube, 'bury', bury.id, jsonb_build_object('error', left(bury.error, 4096)), bury.token, bury.session)
$$;

create or replace function @s.fail(
    tube text, id text, token bigint default null, session uuid default null, error text default null,
    delay double precision default null, abort boolean default false, delay_until timestamptz default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(fail.tube, 'fail', fail.id, jsonb_build_object(
        'error', left(fail.error, 4096), 'abort', case when fail.abort then 'aborted' end
    ) || @s.delay_args(fail.delay, fail.delay_until), fail.token, fail.session)
$$;

create or replace function @s.touch(
    tube text, id text, seconds double precision, token bigint default null, session uuid default null
) returns @s.shown_task language sql @definer as $$
    select @s.call_act(
        touch.tube, 'touch', touch.id, jsonb_build_object('by', @s.micros(touch.seconds, 'seconds')), touch.token, touch.session
    )
$$;
