-- A table of the user's as a tube. Its row shows the letter and the mapped columns; tasks_@n, the side table, has all the
-- rest, and whatever changes there is shown in the row by a trigger. Triggers on the user's table see what others change.

-- Why the tube cannot be used; null when it can.
create or replace function @s.broken_@n() returns text language plpgsql stable as $$
declare
    v_table oid := @s.relation(@schema_text, @table_text);
    v_missing text;
begin
    if (
        select count(*) from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = v_table and p.proname = 'edits_@n' and p.pronamespace = '@s'::regnamespace and t.tgenabled <> 'D'
    ) < 4 then
        return format('the table %L was dropped or renamed, or its triggers were', @table_text);
    end if;
    select string_agg(w.name, ', ' order by w.name) into v_missing from unnest(@watched) w (name)
        where not exists (select from pg_attribute a where a.attrelid = v_table and a.attname = w.name and not a.attisdropped);
    if v_missing is not null then
        return format('the table %L has no columns %s any more', @table_text, v_missing);
    end if;
    return null;
end $$;

-- A task whose row is gone without a word to triggers.
create or replace function @s.orphan_@n(p_id text) returns void language plpgsql as $$
declare
    v_state text;
begin
    delete from @s.tasks_@n x where x.id = p_id returning x.state into v_state;
    if found then
        insert into @s.counts_@n values (1, v_state, 'none');
    end if;
end $$;

-- Lock the row of a task unless somebody else has it.
create or replace function @s.lock_row_@n(p_id text) returns boolean language plpgsql as $$
#variable_conflict use_variable
begin
    perform from @table u where @match for no key update skip locked;
    if found then
        return true;
    end if;
    if not exists (select from @table u where @match) then
        perform @s.orphan_@n(p_id);
    end if;
    return false;
end $$;

-- The same, waiting for it; p_look: without. True for what is no task.
create or replace function @s.lock_task_@n(p_id text, p_look boolean default false) returns boolean language plpgsql as $$
#variable_conflict use_variable
begin
    if not exists (select from @s.tasks_@n x where x.id = p_id) then
        return true;
    elsif p_look then
        return @s.lock_row_@n(p_id);
    end if;
    perform from @table u where @match for no key update;
    if not found then
        perform @s.orphan_@n(p_id);
    end if;
    return true;
end $$;

-- The data of a task: the columns that are neither mapped nor part of the key. Null: there is no such row.
create or replace function @s.data_@n(p_id text) returns json language plpgsql stable as $$
#variable_conflict use_variable
declare
    v_data json;
begin
    select coalesce((
        select @data_of from json_each(row_to_json(u.*)) with ordinality e (key, value, i) where e.key <> all (@hidden)
    ), @no_data) into v_data from @table u where @match;
    return v_data;
end $$;

-- Columns that were given, as an object.
create or replace function @s.columns_@n(p_data json) returns json language plpgsql stable as $$
declare
    v_free text[] := array(
        select a.attname::text from pg_attribute a
        where a.attrelid = @s.relation(@schema_text, @table_text) and a.attnum > 0 and not a.attisdropped
            and a.attgenerated = '' and a.attname <> all (@hidden)
        order by a.attnum
    );
    v_unknown text;
begin
    if @tuple and json_typeof(p_data) = 'array' and json_array_length(p_data) = cardinality(v_free) then
        return (
            select coalesce(json_object_agg(v_free[e.i], e.value order by e.i), '{}')
            from json_array_elements(p_data) with ordinality e (value, i)
        );
    elsif json_typeof(p_data) is distinct from 'object' then
        perform @s.refuse(
            'UsageError', 'the data of an adopted table is a mapping of columns, got ' || left(p_data::text, 100)
        );
    end if;
    select string_agg(quote_literal(k.name), ', ' order by k.name) into v_unknown
        from json_object_keys(p_data) k (name) where k.name <> all (v_free);
    if v_unknown is not null then
        perform @s.refuse('UsageError', format(
            'table %L has no free columns [%s]; it has %s', @table_text, v_unknown,
            coalesce(nullif(array_to_string(v_free, ', '), ''), 'none')
        ));
    end if;
    return p_data;
end $$;

-- The row of a task that is put.
create or replace function @s.insert_row_@n(t @s.task) returns void language plpgsql as $$
declare
    v_given json := @s.columns_@n(t.data);
    v_names text;
    v_values text;
    v_number bigint;
begin
    select coalesce(string_agg(format(', %I', k.name), '' order by k.name), ''),
            coalesce(string_agg(format(', d.%I', k.name), '' order by k.name), '')
        into v_names, v_values from json_object_keys(v_given) k (name);
    execute 'insert into @table (@keys, @mapped' || v_names || ') overriding system value
        select @key_values, @mapped_values' || v_values || '
        from (select ($1).*) t, json_populate_record(null::@table, $2) d' using t, v_given;
    get diagnostics v_number = row_count;
    if v_number = 0 then
        perform @s.refuse('UsageError', format('table %L did not keep the row %s', @table_text, t.id));
    end if;
end $$;

create or replace function @s.change_row_@n(p_id text, p_columns json) returns void language plpgsql as $$
declare
    v_sets text;
begin
    select string_agg(format('%1$I = d.%1$I', k.name), ', ') into v_sets from json_object_keys(p_columns) k (name);
    if v_sets is not null then
        execute 'update @table u set ' || v_sets || ' from json_populate_record(null::@table, $2) d where @match_first'
            using p_id, p_columns;
    end if;
end $$;

-- Let the row say what the task is; what says so already, in its way, stays.
create or replace function @s.write_row_@n(t @s.task) returns void language plpgsql as $$
#variable_conflict use_variable
begin
    update @table u set @shown where @match_task and not (@same);
end $$;

create or replace function @s.delete_row_@n(t @s.task) returns void language plpgsql as $$
#variable_conflict use_variable
begin
    delete from @table u where @match_task and @status in ('R', 'T', 'W', 'B', 'Z', 'D');
end $$;

-- Time and the end of a session are not stopped by one row: the queue goes on without it.
create or replace function @s.try_row_@n(t @s.task, p_gone boolean) returns void language plpgsql as $$
begin
    if p_gone then
        perform @s.delete_row_@n(t);
    else
        perform @s.write_row_@n(t);
    end if;
exception when integrity_constraint_violation or data_exception or plpgsql_error or with_check_option_violation then
    raise warning using errcode = 'PS001', message = format(
        'table %L refuses what tube %L has to write: %s', @table_text, (select name from @s.tubes where number = @n), sqlerrm
    );
end $$;

-- On the side table: whatever becomes of tasks is shown in their rows. Data that are there were just given. Triggers of
-- the user's that this sets off find what they found when the table was adopted, whoever calls.
create or replace function @s.shown_@n() returns trigger language plpgsql set search_path from current as $$
declare
    t @s.task;
    v_mode text := coalesce(current_setting('penstock.mode', true), '');
begin
    if v_mode = 'edit' then
        return null;
    elsif tg_op = 'DELETE' then
        for t in select * from olds loop
            if v_mode = '' then
                perform @s.delete_row_@n(t);
            else
                perform @s.try_row_@n(t, true);
            end if;
        end loop;
        return null;
    end if;
    for t in select * from news loop
        if t.data is not null then
            if tg_op = 'INSERT' then
                perform @s.insert_row_@n(t);
            else
                perform @s.change_row_@n(t.id, @s.columns_@n(t.data));
            end if;
            update @s.tasks_@n x set data = null where x.seq = t.seq;
        elsif v_mode = '' then
            perform @s.write_row_@n(t);
        else
            perform @s.try_row_@n(t, false);
        end if;
    end loop;
    return null;
end $$;

-- Puts, each for itself: what the table refuses of one does not concern the others.
create or replace function @s.put_rows_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_joined boolean, p_items json
) returns setof @s.answer language plpgsql @settings as $$
declare
    v_item json;
begin
    for v_item in select value from json_array_elements(p_items) loop
        begin
            perform @s.usable(@n);
            return query select f.* from @s.puts_@n(
                p_version, p_now, p_kept, p_listen, p_relaxed, p_joined, json_build_array(v_item), null
            ) a cross join lateral @s.filled(a) f;
        exception when integrity_constraint_violation or data_exception or plpgsql_error or with_check_option_violation
            or sqlstate 'PS064' or sqlstate 'PS071'
        then
            return next @s.error('Refused', @n, sqlstate || ' ' || sqlerrm, (v_item ->> 'item')::integer);
        end;
    end loop;
end $$;

-- Acks, each for itself, with columns that change with them.
create or replace function @s.ack_rows_@n(
    p_version bigint, p_now bigint, p_kept uuid[], p_listen integer[], p_relaxed boolean, p_joined boolean, p_session uuid,
    p_items json
) returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_listen boolean := coalesce(@n = any (p_listen), false);
    v_session bigint;
    v_item json;
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return next @s.error('Stale', @n, c.version::text);
        return;
    end if;
    if p_relaxed then
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if not p_joined then
        return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    end if;
    select number into v_session from @s.sessions where uuid = p_session;
    for v_item in select value from json_array_elements(p_items) loop
        begin
            perform @s.usable(@n);
            return query select f.* from @s.ack_row_@n(c, v_now, p_joined, v_listen, v_session, v_item) a
                cross join lateral @s.filled(a) f;
        exception when integrity_constraint_violation or data_exception or plpgsql_error or with_check_option_violation
            or sqlstate 'PS064'
        then
            return next @s.error('Refused', @n, sqlstate || ' ' || sqlerrm, (v_item ->> 'item')::integer);
        end;
    end loop;
end $$;

create or replace function @s.ack_row_@n(
    c @s.tubes, p_now bigint, p_joined boolean, p_listen boolean, p_session bigint, p_item json
) returns setof @s.answer language plpgsql as $$
declare
    t @s.task;
    a @s.answer;
    v_error @s.answer;
    v_item integer := (p_item ->> 'item')::integer;
    v_steps @s.step[];
begin
    for a in select * from @s.find_@n(c, p_item ->> 'id', p_now, p_joined, p_listen) loop
        if a.kind = 'step' then
            return next a;
        else
            t := @s.task_of(a);
        end if;
    end loop;
    v_error := @s.lease_error(@n, t, (p_item ->> 'token')::bigint, p_session, v_item);
    if v_error.kind is not null then
        return next v_error;
        return;
    end if;
    v_steps := @s.rule_ack(
        c, @s.updated(c, t, p_item -> 'update'), p_now, p_item ->> 'result', (p_item ->> 'keep')::bigint
    );
    perform @s.save_@n(c, t, v_steps, p_joined);
    if p_listen then
        return query select * from @s.announced(@n, v_steps);
    end if;
    return next @s.answer('task', @n, null, p_now, (v_steps[1]).after, v_item);
end $$;
