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

-- On the side table: whatever becomes of tasks is shown in their rows. Data that are there were just given.
create or replace function @s.shown_@n() returns trigger language plpgsql as $$
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

-- On the user's table: rows that do not say what their tasks are were changed by somebody else.
create or replace function @s.edits_@n() returns trigger language plpgsql
security definer set search_path from current @settings as $$
#variable_conflict use_variable
declare
    v_ids text[];
begin
    if tg_op = 'INSERT' then
        v_ids := array(select @id_of from news u);
    elsif tg_op = 'DELETE' then
        v_ids := array(select @id_of from olds u);
    elsif tg_op = 'TRUNCATE' then
        v_ids := array(select x.id from @s.tasks_@n x);
    else
        v_ids := array(select @id_of from news u union select @id_of from olds u);
    end if;
    if cardinality(v_ids) > 0 and @s.broken_@n() is null then
        v_ids := @s.differing_@n(v_ids);
        if cardinality(v_ids) > 0 then
            perform @s.reconcile_@n(v_ids);
        end if;
    end if;
    return null;
end $$;

-- Those of these rows that do not say what their tasks are. Each is looked up by its key, however many there are.
create or replace function @s.differing_@n(p_ids text[]) returns text[] language plpgsql as $$
begin
    return array(
        select p.id from unnest(p_ids) p (id)
        left join lateral (select x.* from @s.tasks_@n x where x.id = p.id limit 1) t on true
        left join lateral (select u.* from @table u where @match_given limit 1) u on true
        where (t.seq is not null) <> coalesce(@status in ('R', 'T', 'W', 'B', 'Z', 'D'), false)
            or (t.seq is not null and not (@same))
    );
end $$;

-- Make tasks of rows as they are now. Triggers of the user's may have changed them since.
create or replace function @s.reconcile_@n(p_ids text[]) returns void language plpgsql as $$
#variable_conflict use_variable
declare
    c @s.tubes;
    t @s.task;
    o @s.task;
    v_none @s.task;
    p_id text;
    v_letter text;
    v_run_at bigint;
    v_pri bigint;
    v_lane text;
    v_attempt bigint;
    v_same boolean;
    v_moved boolean;
    v_now bigint := @s.now_us();
    v_mode text := coalesce(current_setting('penstock.mode', true), '');
    v_moves text[] := array[]::text[];
    v_lanes text[] := array[]::text[];
begin
    select * into c from @s.tubes where number = @n;
    foreach p_id in array p_ids loop
        select x.* into t from @s.tasks_@n x where x.id = p_id for update;
        v_letter := null;
        select case when @status in ('R', 'T', 'W', 'B', 'Z', 'D') then @status end, @run_at, @priority, @lane, @attempts,
                not (@same_run_at)
            into v_letter, v_run_at, v_pri, v_lane, v_attempt, v_moved from @table u where @match;
        o := t;
        perform set_config('penstock.mode', 'edit', true);
        if v_letter is null then
            delete from @s.tasks_@n x where x.seq = t.seq;
            t := v_none;
        elsif t.seq is null then
            t.seq := @new_seq;
            t.id := p_id;
            t := @s.edited(c, t, v_letter, v_run_at, true, v_pri, v_lane, v_attempt, v_now);
            insert into @s.tasks_@n values (t.*);
        else
            t := @s.edited(c, t, v_letter, v_run_at, v_moved, v_pri, v_lane, v_attempt, v_now);
            update @s.tasks_@n x set @assignments where x.seq = t.seq;
        end if;
        if t.state is distinct from o.state then
            v_moves := array_append(v_moves, format('%s>%s', o.state, coalesce(t.state, 'none')));
        end if;
        v_lanes := array_append(v_lanes, o.lane);
        v_lanes := array_append(v_lanes, t.lane);
        if t.seq is not null then
            select @same into v_same from @table u where @match;
            if not v_same then
                perform set_config('penstock.mode', 'unattended', true);
                perform @s.try_row_@n(t, false);
            end if;
        end if;
        perform set_config('penstock.mode', v_mode, true);
    end loop;
    insert into @s.counts_@n
        select count(*), nullif(split_part(m, '>', 1), ''), split_part(m, '>', 2) from unnest(v_moves) m group by m;
    perform @s.refresh_@n(c, l.lane, v_now, true, v_none, v_none)
        from (select distinct unnest(v_lanes) as lane) l where l.lane is not null;
    -- Somebody may begin to wait between now and the commit, so nobody is asked who does.
    perform pg_notify('@channel', '@n');
end $$;

-- The rows that are there when the table is adopted.
create or replace function @s.take_in_@n(p_now bigint) returns void language plpgsql as $$
#variable_conflict use_variable
declare
    c @s.tubes;
    t @s.task;
begin
    select * into c from @s.tubes where number = @n;
    perform set_config('penstock.mode', 'edit', true);
    insert into @s.tasks_@n
        select n.* from @table u cross join lateral @s.edited(
            c, @s.born(@row_seq, @id_of), @status, @run_at, true, @priority, @lane, @attempts, p_now
        ) n where @status in ('R', 'T', 'W', 'B', 'Z', 'D');
    perform set_config('penstock.mode', '', true);
    insert into @s.counts_@n select count(*), null, x.state from @s.tasks_@n x group by x.state;
    insert into @s.tickets_@n (pri, place, lane)
        select -9223372036854775808, nextval('@s.places_@n'), l.lane
        from (select distinct x.lane from @s.tasks_@n x where x.state = 'ready' and x.lane is not null) l;
    for t in select * from @s.tasks_@n loop
        perform @s.write_row_@n(t);
    end loop;
--if ranked
    perform @s.renumber_@n();
--end
end $$;
--unless ranked

-- The key is the seq. One that we make is above all rows, whatever their letter, and above all that were made before.
create or replace function @s.keyed_@n(t @s.task, p_id text, p_now bigint) returns @s.task language plpgsql as $$
#variable_conflict use_variable
declare
    v_own regclass := @key_sequence;
    v_sequence regclass := coalesce(v_own, '@s.seqs_@n'::regclass);
    v_least bigint;
begin
    if p_id is not null then
        t.seq := p_id::bigint;
        if exists (select from @table u where @match) then
            perform @s.refuse('DuplicateKey', format('table %L has a row with the key %s', @table_text, p_id));
        end if;
    else
        select greatest(max(@first_key) + 1, @least_key) into v_least from @table u;
        if v_own is not null then
            t.seq := nextval(v_own);
        end if;
        if t.seq < v_least then
            t.seq := setval(v_sequence, greatest(v_least, pg_sequence_last_value(v_sequence) + 1));
        end if;
    end if;
    t.id := t.seq::text;
    return t;
end $$;
--end
--if ranked

-- A key that is no number gets one that stands where the key does, by the next who looks: see label.
create or replace function @s.keyed_@n(t @s.task, p_id text, p_now bigint) returns @s.task language plpgsql as $$
#variable_conflict use_variable
begin
    t.seq := @new_seq;
    if p_id is not null and exists (select from @table u where @match) then
        perform @s.refuse('DuplicateKey', format('table %L has a row with the key %s', @table_text, p_id));
    end if;
    return t;
end $$;

-- Give tasks numbers in the order of their keys. New ones have numbers above all others until somebody who looks for
-- tasks finds them committed: two who write keys at the same time do not see each other's, and need not wait.
create or replace function @s.label_@n(c @s.tubes, p_now bigint) returns void language plpgsql as $$
declare
    t @s.task;
    v_none @s.task;
    v_before bigint;
    v_after bigint;
    v_seq bigint;
    v_base bigint;
    v_new bigint;
    v_lanes text[] := array[]::text[];
begin
    if not exists (select from @s.tasks_@n where seq >= 4611686018427387904) or not pg_try_advisory_xact_lock(@lock + 7) then
        return;
    end if;
    select count(*) into v_new from (select from @s.tasks_@n where seq >= 4611686018427387904 limit 1001) new;
    if v_new > 1000 and v_new * 4 > (select count(*) from @s.tasks_@n) then
        perform @s.renumber_@n();
        return;
    end if;
    for t in
        select * from @s.tasks_@n where seq >= 4611686018427387904 order by @s.rank(id) limit 10000 for update skip locked
    loop
        v_before := (
            select x.seq from @s.tasks_@n x where @s.rank(x.id) < @s.rank(t.id) and x.seq < 4611686018427387904
            order by @s.rank(x.id) desc limit 1
        );
        v_after := (
            select x.seq from @s.tasks_@n x where @s.rank(x.id) > @s.rank(t.id) and x.seq < 4611686018427387904
            order by @s.rank(x.id) limit 1
        );
        v_seq := coalesce(v_before + (v_after - v_before) / 2, v_before + 4294967296, v_after - 4294967296, 0);
        v_base := case when coalesce(v_before, v_after, 0) < 1729382256910270464 then 0 else 2305843009213693952 end;
        if v_seq <= v_before or v_seq >= v_after or abs(v_seq - v_base) >= 1152921504606846976 then
            perform @s.renumber_@n();
            return;
        end if;
        update @s.tasks_@n x set seq = v_seq, place = v_seq where x.seq = t.seq;
        v_lanes := array_append(v_lanes, t.lane);
    end loop;
    perform @s.refresh_@n(c, l.lane, p_now, true, v_none, v_none)
        from (select distinct unnest(v_lanes) as lane) l where l.lane is not null;
end $$;

-- All numbers anew, with room between them, in a range of their own: no two rows may have one number for a moment.
create or replace function @s.renumber_@n() returns void language plpgsql as $$
declare
    v_base bigint;
    v_step bigint;
begin
    select case when max(x.seq) < 1729382256910270464 then 2305843009213693952 else 0 end into v_base
        from @s.tasks_@n x where x.seq < 4611686018427387904;
    select least(4294967296, 1152921504606846976 / (count(*) + 1)) into v_step from @s.tasks_@n;
    execute 'update @s.tasks_@n x set seq = n.seq, place = n.seq from (
            select id, $1 + (row_number() over (order by @s.rank(id)) - count(*) over () / 2) * $2 as seq from @s.tasks_@n
        ) n where x.id = n.id' using v_base, v_step;
    insert into @s.tickets_@n (pri, place, lane)
        select -9223372036854775808, nextval('@s.places_@n'), l.lane
        from (select distinct x.lane from @s.tasks_@n x where x.state = 'ready' and x.lane is not null) l;
end $$;
--end

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
