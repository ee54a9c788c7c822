--unless lanes
-- Where the line begins. An entry that is gone stays in the index for as long as some snapshot could see it, so under a
-- long reader every take would step over all that was done since. Takes begin at the mark instead: docs/adr/0011.
--
-- Below the mark nothing is READY but what has a row in lows_@n, inserted by the transaction that made it READY.
-- Only tick raises the mark, in three steps that each see the one before committed:
-- 1. a candidate; from here on whoever makes a task READY below it leaves a low,
-- 2. the next transaction id: whoever did not see the candidate has an older one,
-- 3. when all those are over: the first READY task there is then, but not beyond the candidate.
-- A put needs no low: its transaction has an id before the task has its number, so those with a number below the
-- candidate's are over at step 3. That is so for one priority, and no mark is beyond the one the tube was made with
-- (cap); puts with a better one leave a low. Neither waits for anybody. A long writer holds the mark where it is.

create or replace function @s.low_@n() returns trigger language plpgsql as $$
begin
    -- One is enough for a transaction. Who reads by an old snapshot cannot know how far the mark is.
    insert into @s.lows_@n (pri, seq) select new.pri, new.seq from @s.marks_@n m
        where (
            (new.pri, new.seq) < (m.pri, m.seq) or (new.pri, new.seq) < (m.next_pri, m.next_seq)
            or current_setting('transaction_isolation') <> 'read committed'
        ) and not exists (
            select from @s.lows_@n l where l.xmin = pg_current_xact_id()::xid and (l.pri, l.seq) <= (new.pri, new.seq)
        );
    return null;
end $$;

-- From where on a READY task can be.
create or replace function @s.line_@n(out pri bigint, out seq bigint) language sql stable as $$
    select m.pri, m.seq from (
        select k.pri, k.seq from @s.marks_@n k
        union all (select l.pri, l.seq from @s.lows_@n l order by l.pri, l.seq limit 1)
    ) m order by m.pri, m.seq limit 1
$$;

-- A step of raising the mark, if that is worth it, since it leaves dead rows of its own.
create or replace function @s.raise_@n() returns void language plpgsql @settings as $$
declare
    m @s.marks_@n;
    v_lows tid[];
    v_from record;
    v_pri bigint;
    v_seq bigint;
begin
    if not pg_try_advisory_xact_lock(@lock + 4) then
        return;
    end if;
    select * into m from @s.marks_@n;
    if m.next_pri is not null and m.next_xid is null then
        update @s.marks_@n set next_xid = pg_snapshot_xmax(pg_current_snapshot());
        return;
    elsif m.next_xid > pg_snapshot_xmin(pg_current_snapshot()) then
        return;
    end if;
    v_lows := array(select ctid from @s.lows_@n order by pri, seq limit 1000);
    select * into v_from from @s.line_@n();
    select t.pri, t.seq into v_pri, v_seq from @s.tasks_@n t
        where t.state = 'ready' and (t.pri, t.seq) >= (v_from.pri, v_from.seq) order by t.pri, t.seq limit 1;
    if not found or v_pri > m.cap then
        v_pri := m.cap;
        select last_value into v_seq from @s.seqs_@n;
    end if;
    -- What these lows were for has been taken, and who gives it back leaves another. But one may have stood for other
    -- tasks of its transaction too: the first of what is left has one from now on.
    if cardinality(v_lows) > 0 then
        insert into @s.lows_@n (pri, seq) select v_pri, v_seq
            where (v_pri, v_seq) < (m.pri, m.seq)
                and not exists (select from @s.lows_@n l where (l.pri, l.seq) = (v_pri, v_seq));
        delete from @s.lows_@n where ctid = any (v_lows) and (pri, seq) < (v_pri, v_seq);
    end if;
    if m.next_xid is not null and (m.next_pri, m.next_seq) <= (v_pri, v_seq) then
        m.pri := m.next_pri;
        m.seq := m.next_seq;
    elsif m.next_xid is not null and (m.pri, m.seq) < (v_pri, v_seq) then
        m.pri := v_pri;
        m.seq := v_seq;
    end if;
    m.next_xid := null;
    m.next_pri := case when v_pri > m.pri or (v_pri = m.pri and v_seq >= m.seq + m.step) then v_pri end;
    m.next_seq := case when m.next_pri is not null then v_seq end;
    update @s.marks_@n set pri = m.pri, seq = m.seq, next_pri = m.next_pri, next_seq = m.next_seq, next_xid = null
        where (pri, seq, next_pri, next_xid) is distinct from (m.pri, m.seq, m.next_pri, null::xid8);
end $$;
--end
