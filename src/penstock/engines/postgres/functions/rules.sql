-- What happens to a task, decided without any storage: the twin of model/rules.py, in the same order.
-- Each function gets a task and the time and answers the steps that follow, oldest first.

create or replace function @s.forever() returns bigint
language sql immutable as $$ select 3153600000000000 $$;

create or replace function @s.now_us(p_now bigint default null) returns bigint
language sql volatile as $$ select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint) $$;

create or replace function @s.after(p_start bigint, p_duration bigint) returns bigint
language sql immutable as $$
    select case when p_duration < 3153600000000000 then p_start + p_duration end
$$;

create or replace function @s.passed(p_moment bigint, p_now bigint) returns boolean
language sql immutable as $$ select coalesce(p_now >= p_moment, false) $$;

-- The moment and rank of what time alone will do next: 0 ttr, 1 ttl, 2 delay, 3 purge.
create or replace function @s.timed(t @s.task) returns @s.task
language plpgsql immutable as $$
begin
    t.due_at := null;
    t.due_rank := null;
    if t.state = 'taken' then
        t.due_at := t.deadline;
        t.due_rank := 0;
    elsif t.state = 'done' then
        t.due_at := t.purge_at;
        t.due_rank := 3;
    elsif t.state = 'delayed' and t.ready_at is not null and (t.expires_at is null or t.ready_at < t.expires_at) then
        t.due_at := t.ready_at;
        t.due_rank := 2;
    elsif t.state <> 'buried' or t.reason = 'asked' then
        t.due_at := t.expires_at;
        t.due_rank := 1;
    end if;
    if t.due_at is null then
        t.due_rank := null;
    end if;
    return t;
end $$;

create or replace function @s.is_gone(t @s.task) returns boolean
language sql immutable as $$
    select t.state = 'done' and t.purge_at is not null and t.purge_at <= coalesce(t.done_at, 0)
$$;

-- Microseconds to wait after the k-th failure, without jitter.
create or replace function @s.retry_delay(p_retry jsonb, p_failure bigint) returns bigint
language plpgsql immutable as $$
declare
    v_seconds double precision;
    v_grown double precision;
begin
    case jsonb_typeof(p_retry)
        when 'number' then
            v_seconds := p_retry::double precision;
        when 'array' then
            v_seconds := (p_retry -> (least(p_failure, jsonb_array_length(p_retry)) - 1)::integer)::double precision;
        when 'object' then
            begin
                v_grown := (p_retry ->> 'base')::double precision
                    * power((p_retry ->> 'factor')::double precision, (p_failure - 1)::double precision);
            exception when numeric_value_out_of_range then
                -- too large to say, or too small
                v_grown := case
                    when (p_retry ->> 'base')::double precision = 0 or (p_retry ->> 'factor')::double precision < 1 then 0
                    else 'infinity'
                end;
            end;
            v_seconds := least((p_retry ->> 'max')::double precision, v_grown);
        else
            return 0;
    end case;
    if v_seconds >= 3153600000 then
        return @s.forever();
    end if;
    return round(v_seconds * 1000000)::bigint;
end $$;

create or replace function @s.jittered_delay(p_retry jsonb, p_failure bigint) returns bigint
language plpgsql volatile as $$
declare
    v_delay bigint := @s.retry_delay(p_retry, p_failure);
    v_jitter double precision;
begin
    if jsonb_typeof(p_retry) = 'object' then
        v_jitter := coalesce((p_retry ->> 'jitter')::double precision, 0);
        if v_jitter > 0 then
            v_delay := round(v_delay * (1 + v_jitter * (2 * random() - 1)))::bigint;
        end if;
    end if;
    return v_delay;
end $$;

-- Microseconds waited after the first failures together, without jitter.
create or replace function @s.total_delay(p_retry jsonb, p_failures bigint) returns numeric
language plpgsql immutable as $$
declare
    v_base double precision;
    v_factor double precision;
    v_most double precision;
    v_crossing bigint;
    v_cut bigint;
    v_first bigint;
    v_listed bigint;
    v_total numeric := 0;
begin
    if p_failures < 1 or p_retry is null then
        return 0;
    elsif jsonb_typeof(p_retry) = 'number' then
        return p_failures::numeric * @s.retry_delay(p_retry, 1);
    elsif jsonb_typeof(p_retry) = 'array' then
        v_listed := least(p_failures, jsonb_array_length(p_retry));
        for k in 1 .. v_listed loop
            v_total := v_total + @s.retry_delay(p_retry, k);
        end loop;
        return v_total + (p_failures - v_listed)::numeric * @s.retry_delay(p_retry, v_listed);
    end if;
    v_base := (p_retry ->> 'base')::double precision;
    v_factor := (p_retry ->> 'factor')::double precision;
    v_most := (p_retry ->> 'max')::double precision;
    if v_base = 0 or v_most = 0 then
        return 0;
    end if;
    v_base := greatest(1e-9, v_base);
    v_most := greatest(1e-9, v_most);
    if v_factor in (0, 1) then
        return round((least(v_base, v_most) * case when v_factor = 0 then 1 else p_failures end * 1000000)::numeric);
    end if;
    -- Before it crosses the most the delay grows (or, with a factor below 1, is cut off); after that the opposite.
    v_crossing := least(p_failures, greatest(0, ceil(ln(v_most / v_base) / ln(v_factor))));
    v_cut := case when v_factor > 1 then p_failures - v_crossing else v_crossing end;
    v_first := case when v_factor > 1 then 0 else v_crossing end;
    return round((v_cut * v_most * 1000000)::numeric + (v_base * exp(greatest(-700, v_first * ln(v_factor)))
        * (exp(greatest(-700, (p_failures - v_cut) * ln(v_factor))) - 1) / (v_factor - 1) * 1000000)::numeric);
end $$;

-- Long enough for every attempt to use all of its time and every retry all of its delay. [9]
create or replace function @s.derived_ttl(c @s.tubes, p_ttr bigint, p_max_attempts bigint) returns bigint
language sql immutable as $$
    select least(
        @s.forever(), p_ttr::numeric * p_max_attempts + @s.total_delay(c.retry, p_max_attempts - 1)
    )::bigint
$$;

create or replace function @s.unleased(t @s.task) returns @s.task
language plpgsql immutable as $$
begin
    t.session := null;
    t.token := null;
    t.taken_at := null;
    t.deadline := null;
    return t;
end $$;

create or replace function @s.undone(t @s.task) returns @s.task
language plpgsql immutable as $$
begin
    t.reason := null;
    t.done_at := null;
    t.purge_at := null;
    t.cancel_asked := false;
    return t;
end $$;

-- READY, or DELAYED; a caller's delay moves a ttl that has not passed. [9]
create or replace function @s.waiting(t @s.task, p_now bigint, p_delay bigint, p_moves_ttl boolean default true)
returns @s.task language plpgsql immutable as $$
begin
    if p_delay > 0 and p_moves_ttl and not @s.passed(t.expires_at, p_now) then
        t.expires_at := @s.after(t.expires_at, p_delay);
    end if;
    t.state := case when p_delay > 0 then 'delayed' else 'ready' end;
    t.ready_at := case when p_delay > 0 then @s.after(p_now, p_delay) else p_now end;
    return t;
end $$;

create or replace function @s.ended(t @s.task, p_at bigint, p_reason text, p_keep bigint) returns @s.task
language plpgsql immutable as $$
begin
    if p_keep = 0 and t.watched_until > p_at then
        p_keep := 10000000;
    end if;
    t.state := 'done';
    t.reason := p_reason;
    t.done_at := p_at;
    t.purge_at := @s.after(p_at, p_keep);
    return t;
end $$;

create or replace function @s.keep_failed(c @s.tubes, t @s.task) returns bigint
language sql immutable as $$ select coalesce(c.keep_failed, t.keep, c.keep) $$;

create or replace function @s.expired(c @s.tubes, t @s.task, p_at bigint) returns @s.step
language sql immutable as $$
    select row('ttl', p_at, null, @s.ended(t, p_at, 'expired', @s.keep_failed(c, t)))::@s.step
$$;

create or replace function @s.cancelled(c @s.tubes, t @s.task, p_at bigint) returns @s.step
language sql immutable as $$
    select row('cancel', p_at, null, @s.ended(t, p_at, 'cancelled', @s.keep_failed(c, t)))::@s.step
$$;

-- Steps 2 and 3 of the end of a lease: a cancel that was asked for, a ttl that has passed. [7]
create or replace function @s.judged(c @s.tubes, p_event text, p_error text, t @s.task, p_now bigint) returns @s.step[]
language plpgsql immutable as $$
declare
    v_first @s.step := row(p_event, p_now, p_error, t)::@s.step;
begin
    if t.cancel_asked then
        return array[v_first, @s.cancelled(c, t, p_now)];
    elsif (t.state in ('ready', 'delayed') or t.reason = 'asked') and @s.passed(t.expires_at, p_now) then
        return array[v_first, @s.expired(c, t, p_now)];
    end if;
    return array[v_first];
end $$;

create or replace function @s.with_error(t @s.task, p_error text) returns @s.task
language plpgsql immutable as $$
declare
    v_texts jsonb;
begin
    if p_error is not null then
        v_texts := coalesce(t.errors::jsonb, '[]') || jsonb_build_array(p_error);
        while jsonb_array_length(v_texts) > 20 loop
            v_texts := v_texts - 0;
        end loop;
        t.error := p_error;
        t.errors := v_texts::text;
    end if;
    return t;
end $$;

-- A fresh task: everything but seq, id and place. [9, 10]
create or replace function @s.fresh(
    c @s.tubes, p_now bigint, p_pri bigint, p_ttl bigint, p_derived boolean, p_ttr bigint, p_delay bigint, p_lane text,
    p_max_attempts bigint, p_repeat bigint
) returns @s.task language plpgsql immutable as $$
declare
    t @s.task;
begin
    t.state := case when p_delay > 0 then 'delayed' else 'ready' end;
    t.pri := coalesce(p_pri, c.pri);
    if c.features[6] then
        t.lane := coalesce(nullif(p_lane, ''), case when c.shared_lane then '' end);
    end if;
    t.attempt := 0;
    t.failures := 0;
    t.max_attempts := coalesce(p_max_attempts, c.max_attempts);
    t.ttr := coalesce(p_ttr, c.ttr);
    t.ttl := coalesce(p_ttl, c.ttl);
    if p_derived or (p_ttl is null and c.ttl_derived) then
        t.ttl := @s.derived_ttl(c, t.ttr, t.max_attempts);
    end if;
    if t.ttr is null and c.ttr_is_ttl then
        t.ttr := t.ttl;
    end if;
    t.created_at := p_now;
    t.ready_at := case when p_delay > 0 then @s.after(p_now, p_delay) else p_now end;
    t.expires_at := case when p_repeat is null then @s.after(t.ready_at, t.ttl) end;
    t.repeat := p_repeat;
    t.cancel_asked := false;
    return t;
end $$;

-- The work is done. A repeating task waits for its next turn. [7, 17]
create or replace function @s.rule_ack(c @s.tubes, t @s.task, p_now bigint, p_result text, p_keep bigint)
returns @s.step[] language plpgsql immutable as $$
begin
    t := @s.unleased(t);
    t.result := p_result;
    t.cancel_asked := false;
    if t.repeat is not null then
        t.state := 'delayed';
        t.ready_at := @s.after(p_now, t.repeat);
        t.attempt := 0;
        t.failures := 0;
    else
        t := @s.ended(t, p_now, 'success', coalesce(p_keep, t.keep, c.keep));
    end if;
    return array[row('ack', p_now, null, t)::@s.step];
end $$;

-- Back to its place, now or after a delay. [7, 9]
create or replace function @s.rule_release(
    c @s.tubes, t @s.task, p_now bigint, p_delay bigint default 0, p_pri bigint default null, p_ttl bigint default null,
    p_refund boolean default false
) returns @s.step[] language plpgsql immutable as $$
begin
    t := @s.unleased(t);
    t.pri := coalesce(p_pri, t.pri);
    t.attempt := t.attempt - p_refund::integer;
    t := @s.waiting(t, p_now, p_delay);
    if p_ttl is not null then
        t.ttl := p_ttl;
        t.expires_at := @s.after(p_now + p_delay, p_ttl);
    end if;
    return @s.judged(c, 'release', null, t, p_now);
end $$;

create or replace function @s.rule_bury(c @s.tubes, t @s.task, p_now bigint, p_error text default null)
returns @s.step[] language plpgsql immutable as $$
begin
    t := @s.with_error(@s.unleased(t), p_error);
    t.state := 'buried';
    t.reason := 'asked';
    return @s.judged(c, 'bury', p_error, t, p_now);
end $$;

-- An attempt failed: another one follows, or the task is buried. [7, 8]
create or replace function @s.rule_fail(
    c @s.tubes, t @s.task, p_now bigint, p_error text, p_delay bigint, p_abort text
) returns @s.step[] language plpgsql volatile as $$
declare
    v_left boolean := t.max_attempts is null or t.attempt < t.max_attempts;
begin
    if t.max_attempts is null and c.retry is null and p_delay is null then
        v_left := false;
    end if;
    t := @s.with_error(@s.unleased(t), p_error);
    t.failures := t.failures + 1;
    if p_abort is not null or not v_left then
        t.state := 'buried';
        t.reason := coalesce(p_abort, 'no_attempts');
    else
        t := @s.waiting(t, p_now, coalesce(p_delay, @s.jittered_delay(c.retry, t.failures)), false);
    end if;
    return @s.judged(c, 'fail', p_error, t, p_now);
end $$;

-- The holder ran out of time (ttr) or its session ended (release). [7]
create or replace function @s.rule_lose(c @s.tubes, t @s.task, p_at bigint, p_event text)
returns @s.step[] language plpgsql immutable as $$
begin
    t := @s.unleased(t);
    if t.max_attempts is null or t.attempt < t.max_attempts then
        t.state := 'ready';
        t.ready_at := p_at;
    else
        t.state := 'buried';
        t.reason := 'lost';
    end if;
    return @s.judged(c, p_event, null, t, p_at);
end $$;

-- Do the one thing that was due, at its own moment. A purge has no step. [2]
create or replace function @s.rule_settle(c @s.tubes, t @s.task) returns @s.step[]
language plpgsql immutable as $$
declare
    v_at bigint := t.due_at;
begin
    case t.due_rank
        when 0 then return @s.rule_lose(c, t, v_at, 'ttr');
        when 1 then return array[@s.expired(c, t, v_at)];
        when 2 then
            t.state := 'ready';
            return array[row('delay', v_at, null, t)::@s.step];
        else return array[]::@s.step[];
    end case;
end $$;

-- More time for the holder, or a longer life for a task that waits. [10]
create or replace function @s.rule_touch(t @s.task, p_now bigint, p_by bigint) returns @s.step[]
language plpgsql immutable as $$
declare
    v_old @s.task := t;
begin
    if p_by = 0 or t.state not in ('taken', 'ready') then
        return array[]::@s.step[];
    end if;
    if t.state = 'taken' then
        t.deadline := @s.after(t.deadline, p_by);
    end if;
    t.expires_at := @s.after(t.expires_at, p_by);
    if t.deadline is not distinct from v_old.deadline and t.expires_at is not distinct from v_old.expires_at then
        return array[]::@s.step[];
    end if;
    return array[row('touch', p_now, null, t)::@s.step];
end $$;

-- kick, dig, plow: out of the grave with the attempts it had. [17]
create or replace function @s.rule_revive(t @s.task, p_now bigint, p_delay bigint, p_ttl bigint) returns @s.step[]
language plpgsql immutable as $$
declare
    v_passed boolean := @s.passed(t.expires_at, p_now);
begin
    t.reason := null;
    t := @s.waiting(t, p_now, p_delay);
    if p_ttl is not null then
        t.ttl := p_ttl;
        t.expires_at := @s.after(p_now + p_delay, p_ttl);
    elsif v_passed then
        t.expires_at := @s.after(p_now + p_delay, t.ttl);
    end if;
    return array[row('kick', p_now, null, t)::@s.step];
end $$;

create or replace function @s.life(t @s.task, p_ready_at bigint) returns bigint
language sql immutable as $$ select case when t.repeat is null then @s.after(p_ready_at, t.ttl) end $$;

-- From the beginning: no attempts used, a new life span. [17]
create or replace function @s.rule_restart(t @s.task, p_now bigint, p_delay bigint) returns @s.step[]
language plpgsql immutable as $$
begin
    t := @s.waiting(@s.undone(t), p_now, p_delay);
    t.attempt := 0;
    t.failures := 0;
    t.expires_at := @s.life(t, p_now + p_delay);
    return array[row('kick', p_now, null, t)::@s.step];
end $$;

-- That many attempts more, from now. [17]
create or replace function @s.rule_add_retries(t @s.task, p_now bigint, p_number bigint) returns @s.step[]
language plpgsql immutable as $$
begin
    t := @s.waiting(@s.undone(t), p_now, 0);
    t.max_attempts := least(9223372036854775807::numeric, t.attempt::numeric + p_number);
    t.expires_at := @s.life(t, p_now);
    return array[row('kick', p_now, null, t)::@s.step];
end $$;

-- Out of the store, whatever its state. [17]
create or replace function @s.rule_delete(t @s.task, p_now bigint) returns @s.step[]
language plpgsql immutable as $$
begin
    t := @s.unleased(t);
    t.state := 'done';
    t.reason := 'deleted';
    t.done_at := p_now;
    t.purge_at := p_now;
    return array[row('delete', p_now, null, t)::@s.step];
end $$;

-- Move a task that nobody holds to a state by hand. [17]
create or replace function @s.rule_switch(c @s.tubes, t @s.task, p_now bigint, p_state text, p_delay bigint)
returns @s.step[] language plpgsql immutable as $$
declare
    v_old text := t.state;
begin
    if t.state = p_state then
        return array[]::@s.step[];
    elsif p_state = 'done' then
        return array[@s.cancelled(c, t, p_now)];
    end if;
    t := @s.undone(t);
    if @s.passed(t.expires_at, p_now) then
        t.expires_at := @s.life(t, p_now);
    end if;
    if p_state = 'buried' then
        return @s.rule_bury(c, t, p_now);
    end if;
    t := @s.waiting(t, p_now, case when p_state = 'delayed' then p_delay else 0 end);
    t.state := p_state;
    return array[row(case when v_old = 'ready' then 'release' else 'kick' end, p_now, null, t)::@s.step];
end $$;
