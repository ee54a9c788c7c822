-- A key as bytes that sort as it does: whole numbers by size, text by its bytes. Indexes depend on it, so it is part of
-- what is stored and not of the code.
create function @s.rank(p_id text) returns bytea language plpgsql immutable as $$
declare
    v_rank bytea := '';
    v_part jsonb;
begin
    for v_part in
        select e.value from jsonb_array_elements(
            case jsonb_typeof(p_id::jsonb) when 'array' then p_id::jsonb else jsonb_build_array(p_id::jsonb) end
        ) with ordinality e (value, i) order by e.i
    loop
        v_rank := v_rank || case jsonb_typeof(v_part)
            when 'number' then int8send(v_part::bigint # (-9223372036854775808)::bigint)
            else convert_to(v_part #>> '{}', 'UTF8') || '\x00'::bytea
        end;
    end loop;
    return v_rank;
end $$;
