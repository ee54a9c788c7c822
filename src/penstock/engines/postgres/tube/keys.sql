-- Numbers of tasks that follow the keys of an adopted table: lanes and the line stand in the order of seq.
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
