-- The number of a caller's session; made anew if it had ended while its process lives on.
create or replace function @s.join_session(p_uuid uuid, p_name text, p_ttl bigint, p_direct boolean, p_now bigint)
returns bigint language plpgsql as $$
declare
    v_number bigint;
begin
    select number into v_number from @s.sessions where uuid = p_uuid;
    if not found then
        insert into @s.sessions (uuid, name, ttl, direct, expires_at, attached)
            values (p_uuid, p_name, p_ttl, p_direct, p_now + p_ttl, 1)
            on conflict (uuid) do update set name = excluded.name returning number into v_number;
    end if;
    return v_number;
end $$;

-- End sessions whose time is over, each at its own moment. [2, 13]
create or replace function @s.settle_sessions(p_now bigint, p_kept uuid[], p_listen integer[])
returns setof @s.answer language plpgsql as $$
declare
    h @s.sessions;
    c @s.tubes;
begin
    for h in select * from @s.sessions where expires_at <= p_now order by expires_at, number for update skip locked loop
        if h.uuid = any (p_kept) then
            -- Its process lives: it is the caller's, and only had no time for a sign of life.
            update @s.sessions set expires_at = p_now + ttl where number = h.number;
            continue;
        end if;
        for c in select * from @s.tubes order by number loop
            return query execute format('select * from @s.settle_%s($1, $2, 100000, $3)', c.number)
                using c, h.expires_at - 1, c.number = any (p_listen);
        end loop;
        return query select * from @s.give_back(h.number, h.expires_at, false, p_listen) where kind = 'step';
        delete from @s.sessions where number = h.number;
    end loop;
end $$;

-- Give back all that a session holds: as release does when it was closed, as a loss when its time was over. [7]
create or replace function @s.give_back(p_session bigint, p_at bigint, p_closed boolean, p_listen integer[])
returns setof @s.answer language plpgsql as $$
declare
    c @s.tubes;
    t @s.task;
    v_steps @s.step[];
    v_number bigint := 0;
begin
    for c in select * from @s.tubes order by number loop
        for t in execute format(
            'select * from @s.tasks_%s where session = $1 and state = ''taken'' order by seq for update', c.number
        ) using p_session loop
            if t.due_at <= p_at then
                return query execute format(
                    'select * from @s.settled_%s($1, $2, $3, false, $4) where kind = ''step''', c.number
                ) using c, t, p_at, c.number = any (p_listen);
                continue;
            end if;
            v_steps := case when p_closed then @s.rule_release(c, t, p_at) else @s.rule_lose(c, t, p_at, 'release') end;
            execute format('select @s.save_%s($1, $2, $3, false)', c.number) using c, t, v_steps;
            v_number := v_number + 1;
            if c.number = any (p_listen) then
                return query select * from @s.announced(c.number, v_steps);
            end if;
        end loop;
    end loop;
    return next @s.error('given', null, null, v_number::integer, v_number);
end $$;

create or replace function @s.open_session(
    p_now bigint, p_kept uuid[], p_listen integer[], p_uuid uuid, p_name text, p_ttl bigint, p_direct boolean
) returns setof @s.answer language plpgsql as $$
declare
    v_now bigint := @s.now_us(p_now);
begin
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    insert into @s.sessions (uuid, name, ttl, direct, expires_at, attached)
        values (p_uuid, p_name, p_ttl, p_direct, v_now + p_ttl, 1)
        on conflict (uuid) do update set ttl = excluded.ttl, name = excluded.name, direct = excluded.direct,
            expires_at = excluded.expires_at, attached = 1;
end $$;

-- Join the session of a uuid and leave one's own; info is name, direct and ttl of the joined one.
create or replace function @s.identify(p_now bigint, p_kept uuid[], p_listen integer[], p_uuid uuid, p_leave uuid)
returns setof @s.answer language plpgsql as $$
declare
    v_now bigint := @s.now_us(p_now);
    h @s.sessions;
begin
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    select * into h from @s.sessions where uuid = p_uuid for update;
    if not found then
        return next @s.error('SessionExpired', null, null);
        return;
    end if;
    if p_uuid <> p_leave then
        update @s.sessions set expires_at = greatest(expires_at, v_now + ttl), attached = attached + 1 where uuid = p_uuid;
        update @s.sessions set expires_at = v_now + ttl, attached = greatest(0, attached - 1) where uuid = p_leave;
    end if;
    return next @s.error(case when h.direct then 'direct' else 'remote' end, null, h.name, null, h.ttl);
end $$;

-- A sign of life; answers the tokens of the session's tasks that were asked to cancel.
create or replace function @s.extend_session(
    p_now bigint, p_kept uuid[], p_listen integer[], p_uuid uuid, p_name text, p_ttl bigint, p_direct boolean, p_until bigint
) returns setof @s.answer language plpgsql as $$
declare
    v_now bigint := @s.now_us(p_now);
    h @s.sessions;
    v_until bigint;
    v_tube integer;
    v_token bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    perform @s.join_session(p_uuid, p_name, p_ttl, p_direct, v_now);
    select * into h from @s.sessions where uuid = p_uuid for update;
    v_until := coalesce(p_until, v_now + p_ttl);
    if p_ttl >= h.ttl then
        v_until := greatest(v_until, h.expires_at);
    end if;
    update @s.sessions set name = p_name, ttl = p_ttl, direct = p_direct, expires_at = v_until where number = h.number;
    for v_tube in select number from @s.tubes order by number loop
        for v_token in execute format(
            'select token from @s.tasks_%s where session = $1 and state = ''taken'' and cancel_asked order by seq', v_tube
        ) using h.number loop
            return next @s.error('cancelled', v_tube, null, null, v_token);
        end loop;
    end loop;
end $$;

-- Leave a session; the last one out gives back what it holds. at: how many tasks.
create or replace function @s.close_session(p_now bigint, p_kept uuid[], p_listen integer[], p_uuid uuid)
returns setof @s.answer language plpgsql as $$
declare
    v_now bigint := @s.now_us(p_now);
    h @s.sessions;
begin
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    select * into h from @s.sessions where uuid = p_uuid for update;
    if not found then
        return next @s.error('given', null, null, 0, 0);
    elsif h.attached > 1 then
        update @s.sessions set attached = attached - 1 where number = h.number;
        return next @s.error('given', null, null, 0, 0);
    else
        return query select * from @s.give_back(h.number, v_now, true, p_listen);
        delete from @s.sessions where number = h.number;
    end if;
end $$;

-- Where this database is: another one if it was restored or copied.
create or replace function @s.home() returns text language sql stable as $$
    select system_identifier || '/' || (select oid from pg_database where datname = current_database())
    from pg_control_system()
$$;

-- Begin a run unless one goes on: after a crash, a promotion or a restore the marker is missing. [4, 13]
-- p_dead: begin one in any case; these sessions are known to be dead.
create or replace function @s.begin_run(p_now bigint, p_dead uuid[] default null) returns boolean language plpgsql as $$
declare
    c @s.tubes;
    h @s.sessions;
    v_epoch bigint;
    v_now bigint := @s.now_us(p_now);
begin
    if p_dead is null and exists (select from @s.marker where home = @s.home()) then
        return false;
    end if;
    lock table @s.marker in exclusive mode;
    if p_dead is null and exists (select from @s.marker where home = @s.home()) then
        return false;
    end if;
    perform set_config('synchronous_commit', 'on', true);
    update @s.store set
        epoch = greatest(epoch + 1, ((select last_value from @s.tokens) >> 32) + 1,
            (extract(epoch from clock_timestamp()) - 1704067200)::bigint),
        event_base = greatest(event_base,
            coalesce((select (max(seq) >> 24) + 1 from @s.events), 0) - pg_current_xact_id()::text::bigint)
        returning epoch into v_epoch;
    perform setval('@s.tokens', v_epoch << 32);
    for h in select * from @s.sessions where uuid = any (p_dead) order by number loop
        perform @s.give_back(h.number, v_now, false, array[]::integer[]);
        delete from @s.sessions where number = h.number;
    end loop;
    for c in select * from @s.tubes order by number loop
        if c.temporary then
            perform @s.clear(c.number);
        end if;
        execute format('select @s.fold_%s(true)', c.number);
    end loop;
    update @s.sessions set expires_at = v_now + ttl, attached = case when direct then attached else 0 end;
    delete from @s.waits;
    delete from @s.marker;
    insert into @s.marker (home, began_at) values (@s.home(), v_now);
    return true;
end $$;
