-- A call inside a transaction that somebody else runs on a connection of their own. Request and reply are JSON in
-- bytes, and the settings here are ours, so that those of that connection change nothing. What can be said
-- beforehand is answered, since an error would end that transaction: {"no": why}, {"tube": ..} when the caller knows an
-- older or a younger one, or {"rows": ..}.
create or replace function @s.joined(p_request bytea) returns bytea language plpgsql
set search_path = pg_catalog, pg_temp set standard_conforming_strings = on set bytea_output = hex as $$
declare
    q json := convert_from(p_request, 'UTF8')::json;
    c @s.tubes;
    v_rows json;
begin
    select * into c from @s.tubes where name = q ->> 'tube';
    if not found then
        return @s.reply('no', to_json('tube'::text));
    elsif current_setting('transaction_read_only')::boolean and q ->> 'call' is not null then
        return @s.reply('no', to_json('writing'::text));
    elsif c.version is distinct from (q ->> 'version')::bigint or c.number is distinct from (q ->> 'number')::integer then
        return @s.reply('tube', json_build_array(c.number, c.version, c.config));
    elsif q ->> 'call' is null then
        execute format(
            'select coalesce(json_agg(@s.filled(@s.answer(''task'', $1, null, null, row(t.*)::@s.task))), ''[]'')
             from @s.tasks_%s t where t.seq = $2 or t.id = $3', c.number
        ) into v_rows using c.number, (q ->> 'seq')::bigint, q ->> 'id';
        return @s.reply('rows', v_rows);
    end if;
    -- From here on the tube cannot be dropped. What is asked for again holds the lock already.
    begin
        execute format('lock table @s.tasks_%s in row exclusive mode', c.number);
    exception when undefined_table then
        return @s.reply('no', to_json('tube'::text));
    end;
    execute @s.spelled(q ->> 'call') into v_rows using q -> 'args';
    -- Somebody may begin to wait between now and the commit, so nobody is asked who does.
    if (q ->> 'notify')::boolean then
        perform pg_notify('@channel', c.number::text);
    end if;
    return @s.reply('rows', v_rows);
end $$;

create or replace function @s.reply(p_what text, p_value json) returns bytea language sql stable as $$
    select convert_to(json_build_object(p_what, p_value)::text, 'UTF8')
$$;

-- A call of a function of ours with arguments from a JSON array, and its rows as JSON.
create or replace function @s.spelled(p_function text) returns text language sql stable as $$
    select format('select coalesce(json_agg(a), ''[]'') from @s.%I(%s) a', p.proname, string_agg(format(
        case when t.typcategory = 'A' then
            'case json_typeof($1 -> %1$s) when ''array'' then (
                select coalesce(array_agg(e.x order by e.i), ''{}'') from json_array_elements_text($1 -> %1$s) with ordinality e (x, i)
            )::%2$s else ($1 ->> %1$s)::%2$s end'
        else '($1 ->> %1$s)::%2$s' end, u.i - 1, format_type(t.oid, null)
    ), ', ' order by u.i))
    from pg_proc p, unnest(p.proargtypes) with ordinality u (type, i) join pg_type t on t.oid = u.type
    where p.pronamespace = '@s'::regnamespace and p.proname = p_function
    group by p.oid, p.proname
$$;
