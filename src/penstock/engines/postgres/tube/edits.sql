-- What others write into an adopted table, seen at once and in their transaction.

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
