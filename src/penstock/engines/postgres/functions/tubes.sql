-- Remove all tasks of a tube that can be seen. Rows of open transactions are left to them, so nobody is waited for.
create or replace function @s.clear(p_tube integer) returns bigint language plpgsql as $$
declare
    c @s.tubes;
    v_number bigint;
begin
    select * into c from @s.tubes where number = p_tube;
    if c.features[6] then
        execute format('delete from @s.tickets_%s', p_tube);
    end if;
    execute format(
        'with old as (
             delete from @s.tasks_%1$s where ctid = any (array(select ctid from @s.tasks_%1$s for update skip locked)) returning state
         ), counted as (
             insert into @s.counts_%1$s select count(*), state, ''none'' from old group by state returning n
         ) select count(*) from old', p_tube
    ) into v_number;
    perform @s.wake(p_tube, true, true);
    return v_number;
end $$;

-- Remove what belongs to a tube: its tables, sequences and functions all end in its number. Adopted tables stay.
create or replace function @s.drop_parts(p_tube integer) returns void language plpgsql as $$
declare
    v_part regclass;
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc p
        where p.pronamespace = '@s'::regnamespace and p.proname ~ ('_' || p_tube || '$')
    loop
        execute format('drop function %s cascade', v_function);
    end loop;
    for v_part in
        select r.oid::regclass from pg_class r
        where r.relnamespace = '@s'::regnamespace and r.relkind in ('r', 'S')
            and r.relname ~ ('^(tasks|lanes|tickets|counts|seqs|places|marks|lows)_' || p_tube || '$')
        order by r.relkind desc  -- tables before the sequences that they take numbers from
    loop
        execute format('drop %s %s', case when v_part::text ~ '(seqs|places)_' then 'sequence' else 'table' end, v_part);
    end loop;
end $$;

-- Do what is due in the whole store; at: the next moment at which something is.
create or replace function @s.tick(p_now bigint, p_kept uuid[], p_listen integer[]) returns setof @s.answer
language plpgsql @settings as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
    v_due bigint;
    v_next bigint;
begin
    if pg_is_in_recovery() then
        return next @s.error('next', null, null);
        return;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    return query select * from @s.settle_sessions(v_now, p_kept, p_listen);
    select min(expires_at) into v_next from @s.sessions where ttl < @s.forever();
    for c in select * from @s.tubes order by number loop
        return query execute format('select * from @s.settle_%s($1, $2, 5000, $3)', c.number)
            using c, v_now, c.number = any (p_listen);
        execute format('select @s.next_due_%1$s(), @s.fold_%1$s()', c.number) into v_due;
        if c.features[6] then
            execute format('select @s.forget_lanes_%1$s($1), @s.sweep_%1$s()', c.number) using v_now;
        elsif c.config ->> 'adopted' is null then
            execute format('select @s.raise_%s()', c.number);
        end if;
        v_next := least(v_next, v_due);
    end loop;
    return next @s.error('next', null, null, null, v_next);
end $$;

-- Settle one tube, or all, before something is read.
create or replace function @s.settle_tubes(p_now bigint, p_kept uuid[], p_listen integer[], p_tube integer)
returns setof @s.answer language plpgsql @settings as $$
declare
    c @s.tubes;
begin
    if pg_is_in_recovery() then
        return;
    end if;
    return query select * from @s.settle_sessions(p_now, p_kept, p_listen);
    for c in select * from @s.tubes where p_tube is null or number = p_tube order by number loop
        return query execute format('select * from @s.settle_%s($1, $2, 5000, $3)', c.number)
            using c, p_now, c.number = any (p_listen);
    end loop;
end $$;

-- Counters of a tube, or of all: rows of kind 'error' with the name in info and the number in at.
create or replace function @s.read_statistics(p_now bigint, p_kept uuid[], p_listen integer[], p_tube integer)
returns setof @s.answer language plpgsql @settings as $$
declare
    v_tube integer;
begin
    return query select * from @s.settle_tubes(@s.now_us(p_now), p_kept, p_listen, p_tube);
    for v_tube in
        select number from @s.tubes
        -- What is temporary is not on a standby.
        where (p_tube is null or number = p_tube) and not (temporary and pg_is_in_recovery())
    loop
        return query execute format($q$
            select (@s.error(named.what, %1$s, null, null, sum(named.n)::bigint)).* from (
                select target as what, n from @s.counts_%1$s where target not in ('gone', 'none')
                union all select source, -n from @s.counts_%1$s where source is not null
                union all select 'c:' || event, n from @s.counts_%1$s where event is not null
                union all select 'c:' || second, n from @s.counts_%1$s where second is not null
                union all select 'ended', n from @s.counts_%1$s
                    where target in ('gone', 'done') and (source is distinct from 'done' or second is not null)
                        and event is not null
            ) named group by named.what
        $q$, v_tube);
    end loop;
end $$;

-- Tasks in the order of their seq, a page at a time.
create or replace function @s.list_tasks(
    p_tube integer, p_now bigint, p_kept uuid[], p_listen integer[], p_state text, p_limit bigint, p_after bigint, p_after_id text
) returns setof @s.answer language plpgsql @settings as $$
begin
    return query select * from @s.settle_tubes(@s.now_us(p_now), p_kept, p_listen, p_tube);
    if p_after_id is not null then
        execute format('select seq from @s.tasks_%s where coalesce(id, seq::text) = $1', p_tube) into p_after using p_after_id;
        if p_after is null then
            return next @s.error('TaskNotFound', p_tube, null);
            return;
        end if;
    end if;
    return query execute format(
        'select (@s.answer(''task'', $4, null, null, row(t.*)::@s.task)).* from @s.tasks_%s t
         where seq > $1 and ($2 is null or state = $2) order by seq limit $3', p_tube
    ) using coalesce(p_after, -9223372036854775808), p_state, p_limit, p_tube;
end $$;

-- The lowest and the highest seq of a tube's tasks.
create or replace function @s.get_extent(p_tube integer, p_now bigint, p_kept uuid[], p_listen integer[])
returns setof @s.answer language plpgsql @settings as $$
declare
    v_first bigint;
    v_last bigint;
begin
    return query select * from @s.settle_tubes(@s.now_us(p_now), p_kept, p_listen, p_tube);
    execute format('select (select min(seq) from @s.tasks_%1$s), (select max(seq) from @s.tasks_%1$s)', p_tube)
        into v_first, v_last;
    if v_first is not null then
        return next @s.error('extent', p_tube, null, null, v_first);
        return next @s.error('extent', p_tube, null, null, v_last);
    end if;
end $$;

-- Events after a position. Those that an older open transaction could still come before are not shown yet.
create or replace function @s.read_history(p_tube text, p_after bigint, p_upto bigint, p_limit bigint)
returns setof @s.events language sql stable as $$
    select * from @s.events
    where seq > p_after and seq <= p_upto and (p_tube is null or tube = p_tube)
        and seq < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (select event_base from @s.store)) << 24
    order by seq limit p_limit
$$;
