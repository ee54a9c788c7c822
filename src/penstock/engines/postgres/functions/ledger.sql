-- Append notes; answers the lowest of the numbers that was written before, and then nothing is. Who writes the same
-- number at the same time is waited for: what it does decides.
create or replace function @s.write_ledger(p_ledger text, p_first bigint, p_notes text[]) returns bigint
language plpgsql @settings as $$
begin
    insert into @s.notes (ledger, number, note)
        select p_ledger, p_first + n.i - 1, n.note from unnest(p_notes) with ordinality n (note, i) order by n.i;
    -- After the insert: what was trimmed while that waited is seen now.
    if exists (select from @s.trims where ledger = p_ledger and upto >= p_first) then
        raise unique_violation;
    end if;
    return null;
exception when unique_violation then
    return case
        when exists (select from @s.trims where ledger = p_ledger and upto >= p_first) then p_first
        else coalesce((
            select min(number) from @s.notes
            where ledger = p_ledger and number between p_first and p_first + cardinality(p_notes) - 1
        ), p_first)
    end;
end $$;

-- Notes after a number, oldest first.
create or replace function @s.read_ledger(p_ledger text, p_after bigint, p_upto bigint, p_limit bigint)
returns table (number bigint, note text) language plpgsql stable @settings as $$
begin
    return query select n.number, n.note from @s.notes n
        where n.ledger = p_ledger and n.number > p_after and n.number <= p_upto order by n.number limit p_limit;
end $$;

-- The last notes, newest first.
create or replace function @s.last_notes(p_ledger text, p_limit bigint)
returns table (number bigint, note text) language plpgsql stable @settings as $$
begin
    return query select n.number, n.note from @s.notes n where n.ledger = p_ledger order by n.number desc limit p_limit;
end $$;

-- Forget notes up to a number; their numbers stay written.
create or replace function @s.trim_ledger(p_ledger text, p_upto bigint) returns bigint
language plpgsql @settings as $$
declare
    v_number bigint;
begin
    insert into @s.trims as t values (p_ledger, p_upto)
        on conflict (ledger) do update set upto = greatest(t.upto, excluded.upto);
    delete from @s.notes where ledger = p_ledger and number <= p_upto;
    get diagnostics v_number = row_count;
    return v_number;
end $$;

-- Names of ledgers, from one to the next: the notes between them are never looked at.
create or replace function @s.list_ledgers(p_prefix text, p_after text, p_limit bigint) returns setof text
language plpgsql stable @settings as $$
declare
    v_name text collate "C";
begin
    select n.ledger into v_name from @s.notes n where n.ledger >= p_prefix and n.ledger > p_after
        order by n.ledger limit 1;
    while v_name is not null and starts_with(v_name, p_prefix) and p_limit > 0 loop
        return next v_name;
        p_limit := p_limit - 1;
        select min(n.ledger) into v_name from @s.notes n where n.ledger > v_name;
    end loop;
end $$;

-- Remove events, and write down up to where: whoever reads on from before that has missed something.
create or replace function @s.forget_history(p_upto bigint) returns bigint language plpgsql as $$
declare
    v_number bigint;
    v_last bigint;
begin
    with old as (delete from @s.events where seq <= p_upto returning seq)
        select count(*), max(seq) into v_number, v_last from old;
    if v_number > 0 then
        insert into @s.notes values ('history', v_last, '') on conflict do nothing;
        perform @s.trim_ledger('history', v_last - 1);
    end if;
    return v_number;
end $$;

-- Where pages of history end: every so many events, and at the last one. Only what read_history shows.
create or replace function @s.mark_history(
    p_tube text, p_after bigint, p_upto bigint, p_every bigint, p_limit bigint
) returns setof bigint language sql stable as $$
    select m.seq from (
        select e.seq, row_number() over (order by e.seq) as n, lead(e.seq) over (order by e.seq) as later from (
            select seq from @s.events
            where seq > p_after and seq <= p_upto and (p_tube is null or tube = p_tube)
                and seq < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (select event_base from @s.store)) << 24
            order by seq limit p_every * p_limit
        ) e
    ) m where m.n % p_every = 0 or m.later is null order by m.seq
$$;

-- The last event that read_history shows.
create or replace function @s.last_event(p_tube text, p_after bigint, p_upto bigint) returns setof bigint
language sql stable as $$
    select seq from @s.events
    where seq > p_after and seq <= p_upto and (p_tube is null or tube = p_tube)
        and seq < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (select event_base from @s.store)) << 24
    order by seq desc limit 1
$$;
