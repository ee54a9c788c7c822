-- Before tasks come in by COPY: what they have in common. No row: the tube was altered meanwhile.
create or replace function @s.load_begin_@n(
    p_version bigint, p_now bigint, p_pri bigint, p_ttl bigint, p_derived boolean, p_ttr bigint, p_delay bigint,
    p_delay_until bigint, p_max_attempts bigint, p_repeat bigint, out shared @s.task, out first bigint
) returns setof record language plpgsql as $$
declare
    c @s.tubes;
    v_now bigint := @s.now_us(p_now);
begin
    select * into c from @s.tubes where number = @n;
    if c.version <> p_version then
        return;
    end if;
    perform pg_current_xact_id();  -- before the numbers: see tube/marks.sql
    shared := @s.timed(@s.fresh(
        c, v_now, p_pri, p_ttl, p_derived, p_ttr, greatest(0, coalesce(p_delay, p_delay_until - v_now, 0)), null,
        p_max_attempts, p_repeat
    ));
    select last_value into first from @s.seqs_@n;
    return next;
end $$;

-- After they came: what a put does beside storing.
create or replace function @s.load_end_@n(
    p_n bigint, p_state text, p_now bigint, p_first bigint, p_lanes text[], p_pris bigint[]
) returns void language plpgsql @settings as $$
declare
    c @s.tubes;
begin
    select * into c from @s.tubes where number = @n;
    insert into @s.counts_@n values (p_n, null, p_state, 'put');
--if lanes
    if p_state = 'ready' then
        perform @s.put_ticket_@n(c, l.lane, l.pri, (
                select t.seq from @s.tasks_@n t
                where t.lane = l.lane and t.pri = l.pri and t.state = 'ready' and t.seq >= p_first
                order by t.pri, t.seq limit 1
            ), p_now)
            from unnest(p_lanes, p_pris) l (lane, pri);
    end if;
--end
    perform @s.wake(@n, p_state = 'ready', false);
end $$;
