-- What every change does beside changing the row: it is announced, recorded and wakes whoever waits for it.

create or replace function @s.answer(p_kind text, p_tube integer, p_info text, p_at bigint, t @s.task, p_item integer default null)
returns @s.answer language sql immutable as $$
    select row(
        p_kind, p_tube, p_item, p_info, p_at,
        t.seq, t.id, t.state, t.reason, t.data::text, t.body, t.pri, t.lane, t.key, t.put_id, t.attempt, t.failures,
        t.max_attempts, t.ttl, t.ttr, t.created_at, t.ready_at, t.expires_at, t.taken_at, t.deadline, t.done_at,
        t.purge_at, t.session, t.token, t.repeat, t.keep, t.cancel_asked, t.watched_until, t.result, t.error, t.errors
    )::@s.answer
$$;

create or replace function @s.announced(p_tube integer, p_steps @s.step[]) returns setof @s.answer
language sql immutable as $$
    select (@s.answer('step', p_tube, s.event, s.at, s.after)).* from unnest(p_steps) with ordinality s order by s.ordinality
$$;

-- Tell other processes, if one of them waits for tasks (ready) or for the end of one (ended).
create or replace function @s.wake(p_tube integer, p_ready boolean, p_ended boolean) returns void
language plpgsql as $$
begin
    if exists (
        select from @s.waits w
        where w.tube = p_tube and w.until > clock_timestamp() and ((p_ready and w.takes) or (p_ended and w.ends))
    ) then
        perform pg_notify('@channel', p_tube::text);
    end if;
end $$;

-- A row of the history. Its number is among those of its transaction; younger ones may have committed before it.
create or replace function @s.record(c @s.tubes, p_before @s.task, s @s.step) returns void
language plpgsql as $$
declare
    t @s.task := case when c.history_data then @s.with_data(c, s.after) else s.after end;
    v_first bigint;
    v_holder bigint := coalesce(t.session, p_before.session);
begin
    v_first := ((pg_current_xact_id()::text::bigint + (select event_base from @s.store)) << 24);
    insert into @s.events values (
        (select coalesce(max(e.seq), v_first) + 1 from @s.events e where e.seq between v_first and v_first + 16777215),
        s.at, c.name, coalesce(t.id, t.seq::text), s.event, p_before.state, t.state, t.reason, t.attempt, t.pri, t.lane,
        t.key, (select name from @s.sessions where number = v_holder),
        left(substring(s.error from '^([^\W\d][\w.]*):(?:\s|$)'), 100), s.error, t.ready_at,
        coalesce(t.taken_at, p_before.taken_at),
        case when t.state = 'delayed' and t.ready_at is not null then t.ready_at - s.at end,
        case when c.history_data then t.data::text end,
        case when c.history_data then t.body end
    );
end $$;
