-- What api.sql asks before it calls a verb, and how it shows what came of it: the twin of calls.py and payload.py.

-- Refuse a call. Errors have the names and places of model/errors.py: PS064 is the first.
create or replace function @s.refuse(p_error text, p_message text, p_hint text default null) returns void
language plpgsql as $$
declare
    v_code text := 'PS0' || 63 + array_position(array[
        'UsageError', 'EngineUnavailable', 'SchemaMismatch', 'AccessDenied', 'TubeNotFound', 'NotWritable',
        'PayloadTooLarge', 'DuplicateKey', 'TubeFull', 'TaskNotFound', 'NotTaken', 'NotOwner', 'LeaseLost',
        'WrongState', 'TubeExists', 'TubeBusy', 'TaskFailed', 'WaitTimeout', 'SessionExpired', 'BatchError'
    ], p_error);
begin
    if p_hint is null then
        raise exception using errcode = v_code, message = p_message, detail = p_error;
    end if;
    raise exception using errcode = v_code, message = p_message, detail = p_error, hint = p_hint;
end $$;

-- What a verb's function answered, if that is a refusal.
create or replace function @s.refuse_answer(
    c @s.tubes, a @s.answer, p_id text, p_key text default null, p_verb text default ''
) returns void language plpgsql as $$
declare
    v_code text := split_part(a.info, ' ', 1);
    v_info text := substr(a.info, length(split_part(a.info, ' ', 1)) + 2);
    v_task text := case when p_id ~ '^-?[0-9]+$' then p_id else quote_literal(p_id) end;
begin
    case v_code
        when 'TaskNotFound' then
            if p_verb = 'tasks' then
                perform @s.refuse(v_code, format('there is no task %s to list from', v_task));
            end if;
            perform @s.refuse(v_code, format('tube %L has no task with the id %s', c.name, v_task));
        when 'NotTaken' then
            perform @s.refuse(
                v_code, format('task %s is %s, nobody holds it', v_task, v_info),
                case when p_verb <> 'snatch' then 'take it first' end
            );
        when 'NotOwner' then
            perform @s.refuse(v_code, format(
                'task %s is held by %s', v_task, coalesce(nullif(v_info, ''), 'a session that is gone')
            ));
        when 'LeaseLost' then
            perform @s.refuse(v_code, format('the lease of task %s is over%s', v_task, case v_info
                when 'gone' then ' and the task is gone'
                when 'taken' then ': another run holds it'
                when 'done' then ': it is finished'
                else ': it is ' || v_info
            end), case when v_info <> 'gone' then 'stop working on it' end);
        when 'WrongState' then
            perform @s.refuse(
                v_code, format('task %s is %s%s', v_task, v_info, case when p_verb = 'cancel' then ' already' end),
                case p_verb
                    when 'bury' then 'restart it before it can be buried'
                    when 'dig' then 'only a buried task can be dug out'
                    when 'restart' then 'only a waiting or ended task can be restarted'
                    when 'switch' then 'snatch it first'
                end
            );
        when 'TubeFull' then
            perform @s.refuse(
                v_code, format('tube %L holds its capacity of %s tasks', c.name, v_info), 'finish some or wait'
            );
        when 'DuplicateKey' then
            if v_info = 'id' then
                perform @s.refuse(v_code, format('tube %L has a task with the id %s', c.name, v_task));
            elsif starts_with(v_info, 'back ') then
                perform @s.refuse(
                    v_code, format('a live task has the key %L', substr(v_info, 6)), 'finish it before this one comes back'
                );
            end if;
            perform @s.refuse(v_code, format(
                'a %s task of tube %L has the key %L', coalesce(nullif(split_part(v_info, ' ', 2), ''), 'new'), c.name, p_key
            ), 'on_conflict= ignore, replace or restart says what to do then');
        when 'Refused' then
            perform @s.refuse('UsageError', format(
                'table %L refuses this: %s', c.config -> 'adopted' ->> 'table', substr(v_info, length(split_part(v_info, ' ', 1)) + 2)
            ));
        when 'Stale' then
            perform @s.refuse('TubeNotFound', format('tube %L was dropped just now', c.name));
        else
            perform @s.refuse('EngineUnavailable', format('the store answered %L', a.info));
    end case;
end $$;

create or replace function @s.known(p_tube text) returns @s.tubes language plpgsql as $$
declare
    c @s.tubes;
begin
    select * into c from @s.tubes where name = p_tube;
    if not found then
        perform @s.refuse('TubeNotFound', format('there is no tube %L', p_tube), format('create_tube(%L) makes it', p_tube));
    elsif c.kind = 'adopted' then
        perform @s.usable(c.number);
    end if;
    return c;
end $$;

-- An option needs a feature of the tube's kind, by its place in features.
create or replace function @s.need(c @s.tubes, p_option text, p_feature integer) returns void language plpgsql as $$
begin
    if not c.features[p_feature] then
        perform @s.refuse('UsageError', format(
            'option %L needs the feature %L, which tube %L of kind %L lacks', p_option,
            (array['pri', 'ttl', 'ttr', 'delay', 'capacity', 'lanes'])[p_feature], c.name, c.kind
        ), 'kinds that have it: ' || (array[
            'fifottl, limfifottl, utubettl, standard', 'fifottl, limfifottl, utubettl, standard',
            'fifottl, limfifottl, utubettl, standard', 'fifottl, limfifottl, utubettl, standard',
            'limfifottl, standard', 'utube, utubettl, standard'
        ])[p_feature]);
    end if;
end $$;

-- Seconds as whole microseconds; 100 years or more is never. [1]
create or replace function @s.micros(p_seconds double precision, p_name text, p_past boolean default false) returns bigint
language plpgsql as $$
begin
    if p_seconds = 'NaN' then
        perform @s.refuse('UsageError', format('%s must be a number of seconds, not NaN', p_name));
    elsif p_seconds < 0 and not p_past then
        perform @s.refuse('UsageError', format('%s must not be negative, got %s', p_name, p_seconds));
    end if;
    return case
        when p_seconds >= 3153600000 then @s.forever() when p_seconds < 0 then 0 else round(p_seconds * 1000000)::bigint
    end;
end $$;

create or replace function @s.seconds(p_micros bigint) returns double precision language sql immutable as $$
    select case when p_micros >= 3153600000000000 then 'infinity' else p_micros / 1000000.0::double precision end
$$;

-- A moment as a date; those past the year 9999 are none.
create or replace function @s.date(p_moment bigint) returns timestamptz language sql immutable as $$
    select case when p_moment between 0 and 253402300799999999 then
        timestamptz '1970-01-01 00:00:00+00' + p_moment / 1000000 * interval '1 second'
            + p_moment % 1000000 * interval '1 microsecond'
    end
$$;

create or replace function @s.moment(p_date timestamptz) returns bigint language sql immutable as $$
    select case
        when p_date = 'infinity' then 9223372036854775807 when p_date = '-infinity' then 0
        else (extract(epoch from p_date) * 1000000)::bigint
    end
$$;

create or replace function @s.short_text(p_value text, p_name text) returns text language plpgsql as $$
begin
    if octet_length(p_value) > 255 then
        perform @s.refuse(
            'UsageError', format('%s must have at most 255 bytes and no NUL, got %s bytes', p_name, octet_length(p_value))
        );
    end if;
    return nullif(p_value, '');
end $$;

-- The rows of an adopted table are the user's to write.
create or replace function @s.refuse_adopted(c @s.tubes, p_what text) returns void language plpgsql as $$
begin
    if c.kind = 'adopted' then
        perform @s.refuse(
            'UsageError', format('tube %L is the adopted table %L', c.name, c.config -> 'adopted' ->> 'table'), p_what
        );
    end if;
end $$;

create or replace function @s.by_seq(c @s.tubes) returns boolean language sql immutable as $$
    select c.id in ('auto', 'time64') and c.config ->> 'adopted' is null
$$;

-- Ids are text here. Digits are a number; what begins as JSON text or an array is that; all else is text itself.
create or replace function @s.stored_id(c @s.tubes, p_id text) returns text language plpgsql as $$
begin
    if coalesce(p_id, '') = '' then
        perform @s.refuse('UsageError', 'id must be a 64-bit integer, text of up to 255 bytes, or a tuple of them, got ' ||
            coalesce(quote_literal(p_id), 'NULL'));
    elsif @s.by_seq(c) then
        return case when p_id ~ '^[0-9]{1,18}$' or (p_id ~ '^[0-9]{19}$' and p_id <= '9223372036854775807') then p_id else '-1' end;
    elsif (
        case when p_id ~ '^-?(0|[1-9][0-9]{0,18})$' then
            p_id::numeric between -9223372036854775808 and 9223372036854775807
        end
    ) then
        return p_id;
    elsif p_id ~ '^["\[]' then
        begin
            return p_id::jsonb::text;
        exception when data_exception then
            null;  -- it only begins so
        end;
    end if;
    perform @s.short_text(p_id, 'id');
    return to_json(p_id)::text;
end $$;

create or replace function @s.shown_id(p_seq bigint, p_id text) returns text language sql immutable as $$
    select case
        when p_id is null then p_seq::text
        when p_id ~ '^"' and p_id::json #>> '{}' !~ '^(-?[0-9]+$|["\[])' then p_id::json #>> '{}'
        else p_id
    end
$$;

-- A task as callers see it. code is the number that pgqueue has for the state.
create or replace function @s.shown(c @s.tubes, a @s.answer, p_token boolean default false) returns @s.shown_task
language sql immutable as $$
    select row(
        c.name, @s.shown_id(a.seq, a.id), a.state, a.reason, case
            when a.state = 'taken' then 2
            when a.reason = 'cancelled' or a.reason = 'deleted' then 95
            when a.reason in ('aborted', 'asked', 'unknown_handler') then 96
            when a.reason = 'lost' then 97
            when a.reason = 'expired' then 98
            when a.reason = 'no_attempts' then 99
            when a.reason = 'success' then 100
            else least(a.attempt, 1)
        end,
        a.data, a.body, a.pri, a.lane, a.key, a.attempt, a.max_attempts, @s.seconds(a.ttl), @s.seconds(a.ttr),
        @s.date(a.created_at), @s.date(a.ready_at), @s.date(a.expires_at), @s.date(a.deadline), @s.date(a.done_at),
        @s.date(a.purge_at), a.error, a.errors, a.result, coalesce(a.cancel_asked, false),
        case when p_token then a.token end, case when a.kind = 'task' then a.info end
    )::@s.shown_task
$$;

-- -- putting --------------------------------------------------------------------------------------------

-- Data that means the same to every reader. [21] What jsonb does not take has been refused before.
create or replace function @s.check_data(c @s.tubes, p_data jsonb, p_body bytea) returns void language plpgsql as $$
declare
    v_text text := p_data::text;
    v_size bigint := coalesce(octet_length(v_text), octet_length(p_body));
begin
    if v_size is null then
        perform @s.refuse('UsageError', 'data must not be NULL', '''null''::jsonb is the null of JSON');
    elsif (p_data is null) <> (c.payload = 'bytes') or (p_body is null) <> (c.payload = 'json') then
        perform @s.refuse('UsageError', format('tube %L takes %s payloads', c.name, c.payload),
            case c.payload when 'json' then 'pass data => jsonb' else 'pass body => bytea' end);
    elsif v_text ~ '[0-9]{19}' and jsonb_path_exists(
        p_data, 'strict $.** ? (@.type() == "number" && (@ < -9223372036854775808 || @ > 18446744073709551615))'
    ) then
        perform @s.refuse('UsageError', 'integers in data must be between -2**63 and 2**64-1');
    elsif v_size > 64 and jsonb_path_exists(
        p_data, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")'
    ) then
        perform @s.refuse('UsageError', 'data may be nested at most 64 deep');
    elsif v_size > c.max_payload then
        perform @s.refuse(
            'PayloadTooLarge', format('the data has %s bytes, tube %L takes at most %s', v_size, c.name, c.max_payload),
            'put it elsewhere and its address in the task, or alter max_payload'
        );
    end if;
end $$;

-- A number among options that came as JSON, as text: numbers that JSON has no word for come as text anyway.
create or replace function @s.number_in(p_options jsonb, p_name text, p_what text) returns text language plpgsql as $$
begin
    if jsonb_typeof(p_options -> p_name) = 'number' or p_options ->> p_name in ('Infinity', '-Infinity', 'NaN') then
        return p_options ->> p_name;
    elsif p_options ->> p_name is not null then
        perform @s.refuse('UsageError', format('%s must be %s, got %s', p_name, p_what, p_options -> p_name));
    end if;
    return null;
end $$;

create or replace function @s.whole_in(p_options jsonb, p_name text, p_least bigint, p_what text) returns bigint
language plpgsql as $$
declare
    v_number text := @s.number_in(p_options, p_name, p_what);
begin
    if v_number !~ '^-?[0-9]+$' or v_number::numeric not between p_least and 9223372036854775807 then
        perform @s.refuse('UsageError', format('%s must be %s, got %s', p_name, p_what, v_number));
    end if;
    return v_number::bigint;
end $$;

-- One task as puts_N takes it, from options as a caller gives them.
create or replace function @s.item(c @s.tubes, p_item bigint, p_data jsonb, p_body bytea, o jsonb) returns jsonb
language plpgsql as $$
declare
    v_seconds text := 'seconds (a number) or a timedelta';
    v_unknown text;
    v_keep double precision;
    v_item jsonb;
begin
    select k into v_unknown from jsonb_object_keys(o) k where k not in (
        'data', 'pri', 'ttl', 'ttr', 'delay', 'delay_until', 'lane', 'key', 'on_conflict', 'put_id', 'id', 'max_attempts',
        'keep', 'repeat'
    ) limit 1;
    if found then
        perform @s.refuse('UsageError', format('unknown option %L', v_unknown));
    elsif coalesce(o ->> 'on_conflict', 'error') not in ('error', 'ignore', 'replace', 'restart') then
        perform @s.refuse(
            'UsageError', format('on_conflict must be error, ignore, replace or restart, got %L', o ->> 'on_conflict')
        );
    end if;
    v_keep := case o -> 'keep' when 'true' then 'infinity' when 'false' then 0.0::double precision
        else @s.number_in(o, 'keep', 'True, False or seconds')::double precision end;
    v_item := jsonb_build_object(
        'item', p_item, 'pri', @s.whole_in(o, 'pri', -9223372036854775808, 'a signed 64-bit integer'),
        'ttl', case when o ->> 'ttl' <> 'derived' then @s.micros(@s.number_in(o, 'ttl', v_seconds)::double precision, 'ttl') end,
        'derived', case when o ->> 'ttl' = 'derived' then true end,
        'ttr', @s.micros(@s.number_in(o, 'ttr', v_seconds)::double precision, 'ttr'),
        'delay', @s.micros(@s.number_in(o, 'delay', v_seconds)::double precision, 'delay', true),
        'delay_until', @s.moment((o ->> 'delay_until')::timestamptz),
        'lane', @s.short_text(o ->> 'lane', 'lane'), 'key', @s.short_text(o ->> 'key', 'key'),
        'on_conflict', coalesce(o ->> 'on_conflict', 'error'), 'put_id', @s.short_text(o ->> 'put_id', 'put_id'),
        'id', case when o ->> 'id' is not null then @s.stored_id(c, o ->> 'id') end,
        'max_attempts', @s.whole_in(o, 'max_attempts', 1, 'a whole number from 1 to 2**63-1'),
        'keep', @s.micros(v_keep, 'keep'),
        'repeat', @s.micros(@s.number_in(o, 'repeat', v_seconds)::double precision, 'repeat')
    );
    perform @s.check_options(c, v_item);
    perform @s.check_data(c, p_data, p_body);
    return jsonb_strip_nulls(v_item) || jsonb_build_object('data', p_data);
end $$;

-- Options that the tube has no feature for, and options that do not go together.
create or replace function @s.check_options(c @s.tubes, i jsonb) returns void language plpgsql as $$
begin
    if (i ->> 'repeat')::bigint = 0 then
        perform @s.refuse('UsageError', 'repeat must be more than 0 seconds');
    end if;
    perform @s.need(c, o.option, o.feature) from (values
        ('pri', i ->> 'pri', 1), ('ttl', i ->> 'ttl', 2), ('ttl', i ->> 'derived', 2), ('ttr', i ->> 'ttr', 3),
        ('delay', i ->> 'delay', 4), ('delay', i ->> 'delay_until', 4), ('repeat', i ->> 'repeat', 4),
        ('lane', i ->> 'lane', 6)
    ) o (option, value, feature) where o.value is not null;
    if c.id in ('required', 'function') and i ->> 'id' is null then
        perform @s.refuse('UsageError', format('tube %L has id=%L: every put needs an id=', c.name, c.id));
    elsif c.id not in ('required', 'function') and i ->> 'id' is not null then
        perform @s.refuse(
            'UsageError', format('tube %L makes its ids itself (id=%L), so put takes none', c.name, c.id)
        );
    elsif (i ->> 'derived' is not null or (c.ttl_derived and i ->> 'ttl' is null))
        and (coalesce((i ->> 'ttr')::bigint, c.ttr) is null or coalesce((i ->> 'max_attempts')::bigint, c.max_attempts) is null)
    then
        perform @s.refuse('UsageError', 'ttl=''derived'' needs ttr and max_attempts');
    end if;
end $$;
