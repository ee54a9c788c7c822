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

-- Who takes has it shared, who ends the session has it alone: no task is granted to a session that has just ended.
create or replace function @s.session_lock(p_uuid uuid) returns bigint
language sql immutable as $$ select hashtextextended(p_uuid::text, 1) $$;

-- End sessions whose time is over, each at its own moment. [2, 13]
-- Nobody is waited for, since callers hold tasks of others by now: what somebody else has locked stays, with its
-- session, for the next one who looks.
create or replace function @s.settle_sessions(p_now bigint, p_kept uuid[], p_listen integer[])
returns setof @s.answer language plpgsql as $$
declare
    h @s.sessions;
    c @s.tubes;
    v_took_at bigint;
begin
    for h in
        select * from @s.sessions where expires_at <= p_now order by expires_at, number limit 1000 for update skip locked
    loop
        if h.uuid = any (p_kept) then
            -- Its process lives: it is the caller's, and only had no time for a sign of life.
            update @s.sessions set expires_at = p_now + ttl where number = h.number;
            continue;
        end if;
        v_took_at := @s.took_at(h.number);
        if v_took_at >= h.expires_at then
            -- Its process lives, or did until then: it has taken a task since.
            update @s.sessions set expires_at = v_took_at + ttl where number = h.number;
            continue when v_took_at + h.ttl > p_now;
            h.expires_at := v_took_at + h.ttl;
        end if;
        for c in select * from @s.tubes order by number loop
            return query execute format('select * from @s.settle_%s($1, $2, 5000, $3)', c.number)
                using c, h.expires_at - 1, c.number = any (p_listen);
        end loop;
        return query select * from @s.give_back(h.number, h.expires_at, false, p_listen) where kind = 'step';
        perform @s.forget_session(h.number, h.expires_at);
    end loop;
end $$;

-- When a session was last granted something that it still holds.
create or replace function @s.took_at(p_session bigint) returns bigint language plpgsql as $$
declare
    v_tube integer;
    v_at bigint;
    v_last bigint;
begin
    for v_tube in select number from @s.tubes loop
        execute format('select max(taken_at) from @s.tasks_%s where session = $1 and state = ''taken''', v_tube)
            into v_at using p_session;
        v_last := greatest(v_last, v_at);
    end loop;
    return v_last;
end $$;

-- A session is over. What it holds and an open transaction of a caller's has acked is left for later, and so is it.
create or replace function @s.forget_session(p_session bigint, p_at bigint) returns void language plpgsql as $$
declare
    v_tube integer;
    v_holds boolean := not pg_try_advisory_xact_lock(@s.session_lock((select uuid from @s.sessions where number = p_session)));
begin
    for v_tube in select number from @s.tubes loop
        exit when v_holds;
        execute format('select exists (select from @s.tasks_%s where session = $1 and state = ''taken'')', v_tube)
            into v_holds using p_session;
    end loop;
    if v_holds then
        update @s.sessions set expires_at = p_at, attached = 0 where number = p_session;
    else
        delete from @s.sessions where number = p_session;
    end if;
end $$;

-- Give back all that a session holds: as release does when it was closed, as a loss when its time was over. [7]
create or replace function @s.give_back(p_session bigint, p_at bigint, p_closed boolean, p_listen integer[])
returns setof @s.answer language plpgsql as $$
declare
    c @s.tubes;
    t @s.task;
    v_steps @s.step[];
    v_number bigint := 0;
    v_freed bigint;
begin
    for c in select * from @s.tubes order by number loop
        if not c.history and c.config ->> 'adopted' is null and not coalesce(c.number = any (p_listen), false) then
            execute format('select @s.free_many_%s($1, $2, $3)', c.number) into v_freed using p_session, p_at, p_closed;
            v_number := v_number + v_freed;
        end if;
        for t in execute format(
            'select * from @s.tasks_%s where session = $1 and state = ''taken'' order by seq for update skip locked', c.number
        ) using p_session loop
            continue when not @s.lock_row(c, t);
            t := @s.with_data(c, t);
            if t.due_at <= p_at then
                return query execute format(
                    'select * from @s.settled_%s($1, $2, $3, false, $4) where kind = ''step''', c.number
                ) using c, t, p_at, c.number = any (p_listen);
                continue;
            end if;
            v_steps := case when p_closed then @s.rule_release(c, t, p_at) else @s.rule_lose(c, t, p_at, 'release') end;
            perform @s.unattended(c, true);
            execute format('select @s.save_%s($1, $2, $3, $4)', c.number) using c, t, v_steps, v_number > @locks;
            perform @s.unattended(c, false);
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

-- Join the session of a uuid and leave one's own. Of the joined one, info: direct or remote, and the name; at: the ttl.
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

-- Give back what was granted to sessions above a token and is not among the known ones, as if it had not been
-- offered: the reply with it got lost. p_here: how many queues of the asking process use each session; what others
-- use too may have been granted to them. A row a tube with the number in at.
create or replace function @s.refund(
    p_now bigint, p_listen integer[], p_sessions uuid[], p_here integer[], p_after bigint, p_known bigint[]
) returns setof @s.answer language plpgsql as $$
declare
    c @s.tubes;
    t @s.task;
    v_now bigint := @s.now_us(p_now);
    v_held bigint[];
    v_steps @s.step[];
    v_number bigint;
begin
    select array_agg(h.number) into v_held from unnest(p_sessions, p_here) k (uuid, here)
        join @s.sessions h on h.uuid = k.uuid where h.attached <= k.here;
    for c in select * from @s.tubes order by number loop
        v_number := 0;
        for t in execute format(
            'select * from @s.tasks_%s where session = any ($1) and state = ''taken'' and token > $2 and token <> all ($3)
             order by seq for update', c.number
        ) using v_held, p_after, p_known loop
            v_steps := @s.rule_release(c, t, v_now, p_refund => true);
            perform @s.unattended(c, true);
            execute format('select @s.save_%s($1, $2, $3, $4)', c.number) using c, t, v_steps, v_number > @locks;
            perform @s.unattended(c, false);
            v_number := v_number + 1;
            if c.number = any (p_listen) then
                return query select * from @s.announced(c.number, v_steps);
            end if;
        end loop;
        return next @s.error('refunded', c.number, null, null, v_number);
    end loop;
end $$;

-- What a session holds; nothing if more than p_here are in it: what they were granted is theirs.
create or replace function @s.list_leases(p_now bigint, p_uuid uuid, p_here integer)
returns table (tube text, seq bigint, id text, token bigint) language plpgsql as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_number bigint;
begin
    select h.number into v_number from @s.sessions h
        where h.uuid = p_uuid and h.expires_at > v_now and h.attached <= coalesce(p_here, h.attached);
    for c in select * from @s.tubes where v_number is not null loop
        return query execute format(
            'select $1, t.seq, coalesce(t.id::text, t.seq::text), t.token from @s.tasks_%s t
             where t.session = $2 and t.state = ''taken'' and (t.deadline is null or t.deadline > $3)', c.number
        ) using c.name, v_number, v_now;
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
        perform @s.forget_session(h.number, v_now);
    end if;
end $$;

-- Where this database is: another one if it was restored or copied.
create or replace function @s.home() returns text language sql stable as $$
    select system_identifier || '/' || (select oid from pg_database where datname = current_database())
    from pg_control_system()
$$;

-- A store that can be written to and whose run nobody has begun yet starts up. [22]
create or replace function @s.state() returns text language plpgsql stable as $$
begin
    if pg_is_in_recovery() then
        return 'WAITING';
    elsif exists (select from @s.marker where home = @s.home()) then
        return 'RUNNING';
    end if;
    return 'STARTUP';
end $$;

-- What the keepers of all processes call: one of them at a time does what is due, and cleans up twice a second at
-- most. at: the next moment at which something is due.
create or replace function @s.keep_time(p_kept uuid[], p_listen integer[]) returns setof @s.answer
language plpgsql @settings as $$
declare
    v_now bigint := @s.now_us();
    v_tube integer;
    v_due bigint;
    v_next bigint;
begin
    perform set_config('synchronous_commit', 'off', true);
    if not pg_try_advisory_xact_lock(hashtextextended('keep_time @s', 0)) then
        return next @s.error('next', null, null, null, v_now + 100000);
        return;
    end if;
    if not exists (select from @s.marker where home = @s.home()) then
        perform @s.begin_run(null);
    end if;
    select min(expires_at) into v_next from @s.sessions where ttl < @s.forever();
    for v_tube in select number from @s.tubes loop
        execute format('select @s.next_due_%s()', v_tube) into v_due;
        v_next := least(v_next, v_due);
    end loop;
    if v_next > v_now and exists (select from @s.marker where swept_at > v_now - 500000) then
        return next @s.error('next', null, null, null, v_next);
        return;
    end if;
    update @s.marker set swept_at = v_now;
    delete from @s.waits where until < clock_timestamp() - interval '1 minute';
    return query select * from @s.tick(null, p_kept, p_listen);
end $$;

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
        perform @s.forget_session(h.number, v_now);
    end loop;
    for c in select * from @s.tubes order by number loop
        if c.temporary then
            perform @s.clear(c.number);
        end if;
        execute format('select @s.fold_%s(true)', c.number);
    end loop;
    update @s.sessions set expires_at = v_now + ttl, attached = case when direct then attached else 0 end;
    delete from @s.marker;
    insert into @s.marker (home, began_at) values (@s.home(), v_now);
    return true;
end $$;
