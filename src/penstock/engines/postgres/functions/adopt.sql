-- Tables of the user's as tubes: what all of them share. tube/adopted.sql has the rest.

-- xqueue's letter of a state. One that is kept for ever is D, one that goes after a while or by the feature zombie Z.
create or replace function @s.letter(p_state text, p_purge_at bigint, p_keep bigint, p_zombie boolean) returns text
language sql immutable as $$
    select case p_state
        when 'ready' then 'R' when 'taken' then 'T' when 'delayed' then 'W' when 'buried' then 'B'
        else case
            when p_purge_at is null and coalesce(p_keep >= 3153600000000000, not p_zombie) then 'D' else 'Z'
        end
    end
$$;

-- The table of that name, if there is one.
create or replace function @s.relation(p_schema text, p_name text) returns oid language sql stable as $$
    select r.oid from pg_class r join pg_namespace n on n.oid = r.relnamespace
    where n.nspname = p_schema and r.relname = p_name and r.relkind = 'r'
$$;

-- A task as its row says. o: the task as it was; without a state it was none. p_moved: the moment in the row is not
-- the one that was written there; one that was left beside a new letter means nothing.
create or replace function @s.edited(
    c @s.tubes, o @s.task, p_letter text, p_run_at bigint, p_moved boolean, p_pri bigint, p_lane text, p_attempt bigint,
    p_now bigint
) returns @s.task language plpgsql immutable as $$
declare
    t @s.task := o;
    v_zombie boolean := (c.config #>> '{adopted,zombie}')::boolean;
begin
    if o.state is null then
        t := @s.fresh(c, p_now, null, null, false, null, 0, null, null, null);
        t.seq := o.seq;
        t.id := o.id;
        t.place := o.seq;
        t.expires_at := null;
    end if;
    t.pri := coalesce(p_pri, t.pri);
    t.attempt := greatest(0, coalesce(p_attempt, t.attempt));
    if c.features[6] then
        t.lane := nullif(p_lane, '');
    end if;
    if o.state is null or p_letter <> @s.letter(o.state, o.purge_at, o.keep, v_zombie) then
        if p_moved and p_letter in ('R', 'B') and c.features[2] then
            t.expires_at := p_run_at;
        end if;
        t := @s.entered(t, p_letter, p_run_at, v_zombie, p_now);
    elsif p_moved then
        case t.state
            when 'taken' then t.deadline := case when c.features[3] then p_run_at else t.deadline end;
            when 'delayed' then t.ready_at := p_run_at;
            when 'done' then t.purge_at := case when p_letter = 'Z' then p_run_at else t.purge_at end;
            else t.expires_at := case when c.features[2] then p_run_at else t.expires_at end;
        end case;
    end if;
    return @s.timed(t);
end $$;

-- A task that has nothing yet but its number and its id.
create or replace function @s.born(p_seq bigint, p_id text) returns @s.task language plpgsql immutable as $$
declare
    t @s.task;
begin
    t.seq := p_seq;
    t.id := p_id;
    return t;
end $$;

-- Into the state of a letter, without a lease: nobody who writes T by hand could finish the task.
create or replace function @s.entered(t @s.task, p_letter text, p_run_at bigint, p_zombie boolean, p_now bigint)
returns @s.task language plpgsql immutable as $$
begin
    t := @s.undone(@s.unleased(t));
    t.ready_at := p_now;
    case p_letter
        when 'W' then
            t.state := 'delayed';
            t.ready_at := p_run_at;
        when 'B' then
            t.state := 'buried';
            t.reason := 'asked';
        when 'Z', 'D' then
            t.state := 'done';
            t.reason := 'success';
            t.done_at := p_now;
            t.purge_at := case when p_letter = 'Z' then p_run_at end;
            t.keep := case
                when p_letter = 'D' then @s.forever() when p_run_at is null and not p_zombie then 0
            end;
        else
            t.state := 'ready';
    end case;
    return t;
end $$;

-- Say, until the end of the transaction, that nobody is there to be told what a table refuses; and take it back.
create or replace function @s.unattended(c @s.tubes, p_is boolean) returns void language plpgsql as $$
begin
    if c.kind = 'adopted' then
        perform set_config('penstock.mode', case when p_is then 'unattended' else '' end, true);
    end if;
end $$;

-- Lock the user's row of a task, before the task or without waiting: whoever edits it by hand has the row first and
-- then wants the task. False: somebody else has it, or it is gone.
create or replace function @s.lock_row(c @s.tubes, t @s.task) returns boolean language plpgsql as $$
declare
    v_locked boolean := true;
begin
    if c.kind = 'adopted' then
        execute format('select @s.broken_%1$s() is null and @s.lock_row_%1$s($1)', c.number) into v_locked using t.id;
    end if;
    return v_locked;
end $$;

-- A task with its data, which are columns of the user's.
create or replace function @s.with_data(c @s.tubes, t @s.task) returns @s.task language plpgsql as $$
begin
    if c.kind = 'adopted' and t.data is null then
        execute format('select @s.data_%s($1)', c.number) into t.data using t.id;
        t.data := coalesce(t.data, '{}');
    end if;
    return t;
end $$;

-- An answer with the data of its task as they are now.
create or replace function @s.filled(a @s.answer) returns @s.answer language plpgsql @settings as $$
declare
    v_data text;
begin
    if a.id is not null and exists (select from @s.tubes where number = a.tube and kind = 'adopted') then
        execute format('select @s.data_%s($1)', a.tube) into v_data using a.id;
        a.data := coalesce(v_data, a.data, '{}');
    end if;
    return a;
end $$;

-- Refuse a tube whose table is not what it was.
create or replace function @s.usable(p_tube integer) returns boolean language plpgsql as $$
declare
    v_broken text;
begin
    execute format('select @s.broken_%s()', p_tube) into v_broken;
    if v_broken is not null then
        perform @s.refuse('UsageError', format(
            'tube %L cannot be used: %s; restore it, or drop(force=True) the tube and adopt the table again',
            (select name from @s.tubes where number = p_tube), v_broken
        ));
    end if;
    return true;
end $$;

-- Change columns together with a task. p_update: columns, and pri and lane if their columns were among them.
create or replace function @s.updated(c @s.tubes, t @s.task, p_update json) returns @s.task language plpgsql as $$
begin
    if p_update is null then
        return t;
    end if;
    execute format('select @s.change_row_%1$s($1, @s.columns_%1$s($2))', c.number) using t.id, p_update -> 'columns';
    execute format('select @s.data_%s($1)', c.number) into t.data using t.id;
    t.pri := coalesce((p_update ->> 'pri')::bigint, t.pri);
    if p_update -> 'lane' is not null then
        t.lane := p_update ->> 'lane';
    end if;
    return t;
end $$;

-- Steps that need a feature which was not asked for.
create or replace function @s.check_steps(c @s.tubes, p_steps @s.step[]) returns void language plpgsql as $$
begin
    if c.kind = 'adopted' and ((p_steps[1]).after).state = 'buried' and (p_steps[1]).event in ('bury', 'fail')
        and not (c.config #>> '{adopted,buried}')::boolean
    then
        perform @s.refuse(
            'UsageError', format('tube %L was adopted with buried=False, so nothing can be buried; release it', c.name)
        );
    end if;
end $$;
