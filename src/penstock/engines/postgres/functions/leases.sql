-- An answer that is no task: an error, or a word about the call as a whole.
create or replace function @s.error(
    p_code text, p_tube integer, p_info text, p_item integer default null, p_at bigint default null
) returns @s.answer language plpgsql immutable as $$
declare
    a @s.answer;
begin
    a.kind := 'error';
    a.tube := p_tube;
    a.info := concat_ws(' ', p_code, p_info);
    a.item := p_item;
    a.at := p_at;
    return a;
end $$;

-- Why a lease is not the caller's; all null when it is. [6]
create or replace function @s.lease_error(
    p_tube integer, t @s.task, p_token bigint, p_session bigint, p_item integer default null
) returns @s.answer language plpgsql stable as $$
declare
    v_owned boolean := coalesce(t.state = 'taken' and t.session = p_session, false);
begin
    if p_token is not null then
        if v_owned and t.token = p_token then
            return null;
        end if;
        return @s.error('LeaseLost', p_tube, coalesce(t.state, 'gone'), p_item);
    elsif t.seq is null then
        return @s.error('TaskNotFound', p_tube, null, p_item);
    elsif t.state <> 'taken' then
        return @s.error('NotTaken', p_tube, t.state, p_item);
    elsif not v_owned then
        return @s.error('NotOwner', p_tube, (select name from @s.sessions where number = t.session), p_item);
    end if;
    return null;
end $$;

create or replace function @s.note_take(c @s.tubes, t @s.task, p_now bigint, p_listen boolean)
returns setof @s.answer language plpgsql as $$
declare
    v_before @s.task := t;
begin
    if c.history then
        v_before.state := 'ready';
        v_before.session := null;
        v_before.taken_at := null;
        perform @s.record(c, v_before, row('take', p_now, null, t)::@s.step);
    end if;
    if p_listen then
        return next @s.answer('step', c.number, 'take', p_now, t);
    end if;
end $$;
