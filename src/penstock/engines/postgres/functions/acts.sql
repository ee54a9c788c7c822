-- Verbs on one task by its id. p_args holds what the verb needs; null and absent are alike.
create or replace function @s.act(
    p_tube integer, p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_verb text,
    p_id text, p_token bigint, p_session uuid, p_args json, p_body bytea default null
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    t @s.task;
    o @s.task;
    a @s.answer;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(p_tube = any (p_listen), false);
    v_steps @s.step[];
    v_data boolean;
begin
    select * into c from @s.tubes where number = p_tube;
    if c.version is distinct from coalesce(p_version, c.version) or c.number is null then
        return next @s.error('Stale', p_tube, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if exists (select from @s.sessions where expires_at <= v_now) and not pg_is_in_recovery() then
        if p_verb not in ('peek', 'watch') then
            execute format('select @s.hold_%s($1)', p_tube) using array[p_id];
        end if;
        return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    end if;
    if p_verb = 'cancel' and p_args ->> 'key' is not null then
        execute format('select * from @s.tasks_%s where key = $1 and state <> ''done''', p_tube) into t using p_args ->> 'key';
        p_id := coalesce(t.id, t.seq::text);
        if p_id is null then
            return;
        end if;
        t := null;
    end if;
    if p_id is not null then
        for a in execute format('select * from @s.find_%s($1, $2, $3, false, $4, $5)', p_tube)
            using c, p_id, v_now, v_listen, p_verb in ('peek', 'watch')
        loop
            if a.kind = 'step' then
                return next a;
            else
                t := @s.task_of(a);
            end if;
        end loop;
    end if;
    if p_verb = 'cancel' and p_args ->> 'key' is not null and coalesce(t.state, 'done') = 'done' then
        return;  -- nobody has the key any more
    end if;
    a := @s.act_error(c, t, p_verb, p_token, p_session, p_args);
    if a.kind is not null then
        return next a;
        return;
    end if;
    v_data := p_verb = 'release' and (p_args ->> 'data' is not null or p_body is not null);
    if v_data then
        t.data := p_args ->> 'data';
        t.body := p_body;
    end if;
    o := t;
    if p_args -> 'update' is not null and not (p_verb = 'bury' and t.state = 'buried') then
        t := @s.updated(c, t, p_args -> 'update');
    end if;
    v_steps := @s.act_steps(c, t, p_verb, v_now, p_args);
    perform @s.check_steps(c, v_steps);
    if cardinality(v_steps) > 0 then
        execute format('select @s.save_%s($1, $2, $3, false)', p_tube) using c, o, v_steps;
        t := (v_steps[cardinality(v_steps)]).after;
        if v_data then
            execute format('update @s.tasks_%s set data = $1, body = $2 where seq = $3', p_tube) using t.data, t.body, t.seq;
        end if;
        if v_listen then
            return query select * from @s.announced(p_tube, v_steps);
        end if;
    elsif (p_verb = 'cancel' and t.state = 'taken') or p_verb = 'watch' then
        t := @s.mark(p_tube, t, p_verb, (p_args ->> 'until')::bigint);
    end if;
    return next @s.answer('task', p_tube, null, v_now, t);
end $$;

-- A task without its timer and place: what answers hold of it.
create or replace function @s.task_of(a @s.answer) returns @s.task language sql immutable as $$
    select @s.timed(row(
        a.seq, a.id, a.state, a.reason, a.data, a.body, a.pri, a.lane, a.key, a.put_id, a.attempt, a.failures,
        a.max_attempts, a.ttl, a.ttr, a.created_at, a.ready_at, a.expires_at, a.taken_at, a.deadline, a.done_at,
        a.purge_at, a.session, a.token, a.repeat, a.keep, a.cancel_asked, a.watched_until, a.result, a.error, a.errors,
        null, null, null
    )::@s.task)
$$;

-- Note on a task what changes nothing else: it was asked to cancel, or somebody waits for its end.
create or replace function @s.mark(p_tube integer, t @s.task, p_verb text, p_until bigint) returns @s.task
language plpgsql as $$
begin
    if p_verb = 'cancel' then
        t.cancel_asked := true;
    elsif t.state = 'done' or t.watched_until >= p_until or pg_is_in_recovery() then
        return t;
    else
        t.watched_until := p_until;
    end if;
    execute format(
        'update @s.tasks_%1$s set cancel_asked = $1, watched_until = $2
         where seq = (select seq from @s.tasks_%1$s where seq = $3 for update skip locked)', p_tube
    ) using t.cancel_asked, t.watched_until, t.seq;
    return t;
end $$;

-- Why a verb cannot be done to a task; all null when it can.
create or replace function @s.act_error(
    c @s.tubes, t @s.task, p_verb text, p_token bigint, p_session uuid, p_args json
) returns @s.answer language plpgsql stable as $$
declare
    v_leased boolean := p_verb in ('release', 'fail') or (p_verb in ('bury', 'touch') and (p_token is not null or t.state = 'taken'));
    v_taken_key boolean;
begin
    if v_leased then
        return @s.lease_error(c.number, t, p_token, (select number from @s.sessions where uuid = p_session));
    elsif t.seq is null then
        return @s.error('TaskNotFound', c.number, null);
    end if;
    if p_verb = 'snatch' and t.state <> 'taken' then
        return @s.error('NotTaken', c.number, t.state);
    elsif (p_verb = 'bury' and t.state = 'done')
        or (p_verb = 'dig' and t.state <> 'buried')
        or (p_verb = 'switch' and t.state = 'taken')
        or (p_verb = 'restart' and t.state in ('ready', 'taken'))
        or (p_verb = 'cancel' and t.state = 'done')
    then
        return @s.error('WrongState', c.number, t.state);
    end if;
    if t.state = 'done' and t.key is not null and (p_verb = 'restart' or (p_verb = 'switch' and p_args ->> 'state' <> 'done')) then
        execute format('select exists (select from @s.tasks_%s where key = $1 and state <> ''done'')', c.number)
            into v_taken_key using t.key;
        if v_taken_key then
            return @s.error('DuplicateKey', c.number, 'back ' || t.key);
        end if;
    end if;
    return null;
end $$;

-- What a verb does to a task. A delay is a length, or a moment (until).
create or replace function @s.act_steps(c @s.tubes, t @s.task, p_verb text, p_now bigint, p_args json)
returns @s.step[] language plpgsql volatile as $$
declare
    v_delay bigint := greatest(0, coalesce((p_args ->> 'delay')::bigint, (p_args ->> 'delay_until')::bigint - p_now));
    v_wait bigint := coalesce(v_delay, 0);
begin
    if p_args ->> 'delay' is null and p_args ->> 'delay_until' is null then
        v_delay := null;
        v_wait := 0;
    end if;
    case p_verb
        when 'release' then
            return @s.rule_release(
                c, t, p_now, v_wait, (p_args ->> 'pri')::bigint, (p_args ->> 'ttl')::bigint,
                coalesce((p_args ->> 'refund')::boolean, false)
            );
        when 'snatch' then return @s.rule_release(c, t, p_now, v_wait);
        when 'bury' then
            return case when t.state = 'buried' then array[]::@s.step[] else @s.rule_bury(c, t, p_now, p_args ->> 'error') end;
        when 'fail' then return @s.rule_fail(c, t, p_now, p_args ->> 'error', v_delay, p_args ->> 'abort');
        when 'touch' then return @s.rule_touch(t, p_now, (p_args ->> 'by')::bigint);
        when 'dig' then return @s.rule_revive(t, p_now, v_wait, (p_args ->> 'ttl')::bigint);
        when 'delete' then return @s.rule_delete(t, p_now);
        when 'switch' then return @s.rule_switch(c, t, p_now, p_args ->> 'state', v_wait);
        when 'restart' then return @s.rule_restart(t, p_now, v_wait);
        when 'cancel' then
            return case when t.state = 'taken' then array[]::@s.step[] else array[@s.cancelled(c, t, p_now)] end;
        else return array[]::@s.step[];
    end case;
end $$;

-- Verbs on many tasks of a tube. at: how many.
create or replace function @s.act_many(
    p_tube integer, p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_verb text,
    p_n bigint, p_args json
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    t @s.task;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(p_tube = any (p_listen), false);
    v_where text;
    v_steps @s.step[];
    v_number bigint := 0;
    v_clash boolean;
begin
    select * into c from @s.tubes where number = p_tube;
    if c.version is distinct from coalesce(p_version, c.version) or c.number is null then
        return next @s.error('Stale', p_tube, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    return query execute format('select * from @s.settle_%s($1, $2, 5000, $3)', p_tube) using c, v_now, v_listen;
    v_where := case p_verb
        when 'kick' then 'state = ''buried'' order by pri, seq limit $1 for update skip locked'
        when 'release_all' then 'state = ''taken'' order by seq limit $1 for update skip locked'
        when 'add_retries' then
            '(state = ''buried'' and reason in (''no_attempts'', ''lost'')) or (state = ''done'' and reason = ''expired'')
             order by pri, seq for update skip locked'
    end;
    for t in execute format('select * from @s.tasks_%s where %s', p_tube, v_where) using case when p_verb = 'kick' then p_n end loop
        continue when not @s.lock_row(c, t);
        t := @s.with_data(c, t);
        if p_verb = 'kick' then
            v_steps := @s.act_steps(c, @s.updated(c, t, p_args -> 'update'), 'dig', v_now, p_args);
        elsif p_verb = 'release_all' then
            v_steps := @s.rule_release(c, t, v_now);
        else
            if t.state = 'done' and t.key is not null then
                execute format('select exists (select from @s.tasks_%s where key = $1 and state <> ''done'')', p_tube)
                    into v_clash using t.key;
                continue when v_clash;
            end if;
            v_steps := @s.rule_add_retries(t, v_now, p_n);
        end if;
        execute format('select @s.save_%s($1, $2, $3, $4)', p_tube) using c, t, v_steps, v_number > @locks;
        v_number := v_number + 1;
        if v_listen then
            return query select * from @s.announced(p_tube, v_steps);
        end if;
    end loop;
    return next @s.error('number', p_tube, null, null, v_number);
end $$;
