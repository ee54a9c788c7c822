-- The task of an id, locked. What is due for it is done first; all null when there is none (any more).
-- p_look: one that somebody else has locked is answered as it is; a caller's own transaction may hold it for long.
create or replace function @s.find_@n(
    c @s.tubes, p_id text, p_now bigint, p_joined boolean, p_listen boolean, p_look boolean default false
) returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
begin
    begin
--if adopted
        if not @s.lock_task_@n(p_id, p_look) then
            return query select (@s.answer('task', @n, null, null, row(x.*)::@s.task)).* from @s.tasks_@n x where x.id = p_id;
            return;
        end if;
--end
        if p_look then
            select * into t from @s.tasks_@n where @by_id for update skip locked;
            if not found then
                select * into t from @s.tasks_@n where @by_id;
                if found then
                    return next @s.answer('task', @n, null, null, t);
                end if;
                return;
            end if;
        else
            select * into t from @s.tasks_@n where @by_id for update;
        end if;
    exception when read_only_sql_transaction then
        select * into t from @s.tasks_@n where @by_id;
        if found then
            return next @s.answer('task', @n, null, null, t);
        end if;
        return;
    end;
    if not found then
        return;
    end if;
--if adopted
    t := @s.with_data(c, t);
--end
    return query select * from @s.settled_@n(c, t, p_now, p_joined, p_listen);
end $$;

-- Lock tasks that will be waited for, in one order and before anything else is locked: nobody waits in a circle.
create or replace function @s.hold_@n(p_ids text[]) returns void language plpgsql as $$
begin
--if adopted
    perform @s.lock_task_@n(i.id) from unnest(p_ids) i (id);
--end
    perform from @s.tasks_@n x where x.@item_column in (select @item_key from unnest(p_ids) i (id))
        order by x.seq for update;
end $$;

-- A locked task with what is due for it done: the steps, then the task unless that ended it.
create or replace function @s.settled_@n(c @s.tubes, t @s.task, p_now bigint, p_joined boolean, p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    v_steps @s.step[];
begin
    while t.due_at <= p_now loop
        v_steps := @s.rule_settle(c, t);
--if adopted
        perform @s.unattended(c, true);
--end
        t := @s.save_@n(c, t, v_steps, p_joined);
--if adopted
        perform @s.unattended(c, false);
--end
        if p_listen then
            return query select * from @s.announced(@n, v_steps);
        end if;
    end loop;
    if t.seq is not null then
        return next @s.answer('task', @n, null, null, t);
    end if;
end $$;

-- Store the outcome of steps of one task; count, record and wake. No steps: the task is purged, without an event.
-- Answers what is stored now: all null when that is nothing.
create or replace function @s.save_@n(c @s.tubes, p_before @s.task, p_steps @s.step[], p_joined boolean)
returns @s.task language plpgsql as $$
declare
    t @s.task;
    v_none @s.task;
    v_state text := p_before.state;
    v_before @s.task := p_before;
    s @s.step;
    v_at bigint := p_before.due_at;
    v_gone boolean := true;
begin
    foreach s in array p_steps loop
        t := s.after;
        v_at := s.at;
        if c.history then
            perform @s.record(c, v_before, s);
        end if;
        v_before := t;
    end loop;
    if cardinality(p_steps) > 0 then
        v_gone := @s.is_gone(t);
    end if;
    insert into @s.counts_@n values (
        1, v_state,
        case when cardinality(p_steps) = 0 then 'none' when v_gone then 'gone' else t.state end,
        (p_steps[1]).event, (p_steps[2]).event
    );
    if v_gone then
        delete from @s.tasks_@n where seq = p_before.seq;
    else
        t := @s.timed(t);
        if p_before.seq is null then
            insert into @s.tasks_@n values (t.*);
        else
            update @s.tasks_@n set @assignments where seq = t.seq;
        end if;
    end if;
    perform @s.wake(
        @n, not v_gone and t.state = 'ready', v_gone or t.state in ('done', 'buried') or p_before.state = 'taken'
    );
--if lanes
    if p_before.lane is not null then
        perform @s.refresh_@n(c, p_before.lane, v_at, p_joined, p_before, case when not v_gone then t end);
    end if;
    if not v_gone and t.lane is not null and t.lane is distinct from p_before.lane then
        perform @s.refresh_@n(c, t.lane, v_at, p_joined, v_none, t);
    end if;
--end
    return case when v_gone then v_none else t end;
end $$;
