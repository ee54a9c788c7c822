-- Rows now, by state, from the sum of all deltas.
create or replace function @s.totals_@n(out state text, out n bigint) returns setof record language sql stable as $$
    select s.state, coalesce(sum(case when d.target = s.state then d.n else 0 end), 0)::bigint
        - coalesce(sum(case when d.source = s.state then d.n else 0 end), 0)::bigint
    from unnest(array['ready', 'taken', 'delayed', 'buried', 'done']) s (state) left join @s.counts_@n d on true
    group by s.state
$$;

-- Make few rows of many. Whoever else does so is not waited for; readers see all rows before or all after.
create or replace function @s.fold_@n(p_new_run boolean default false) returns void language plpgsql as $$
begin
    if not p_new_run and not pg_try_advisory_xact_lock(@lock + 2) then
        return;
    end if;
    if p_new_run then
        with old as (delete from @s.counts_@n returning *), moved as (
            select target as state, n from old union all select source, -n from old
        )
        insert into @s.counts_@n
            select sum(n), null, state from moved where state in ('ready', 'taken', 'delayed', 'buried', 'done') group by state;
    else
        with old as (
            delete from @s.counts_@n where ctid = any (array(
                select ctid from @s.counts_@n limit 20000 for update skip locked
            )) returning *
        )
        insert into @s.counts_@n select sum(n), source, target, event, second from old group by 2, 3, 4, 5;
    end if;
end $$;
