-- Notifications from SQL: a trigger, a migration, psql, another language. Kinds of events as the code declares them, events,
-- recipients, their addresses, and what they want.

-- What the code declares of each kind of event, for those who tell without the code. The last word holds.
create table sereno.event_types (
    name         text primary key,
    -- channels, note, category, critical, opt_in, ttl, steps, throttle {most, seconds}, digest {key, seconds}
    definition   jsonb not null,
    declared_at  timestamptz not null default sereno.now()
);

-- Written by SQL: whether its payload is what the code expects, the worker sees.
alter table sereno.events add column unchecked boolean not null default false;

-- As the program checks it. Without a value there is nothing to check.
create function sereno.check_text(name text, value text, longest integer default 500) returns void
    language plpgsql immutable as $$
begin
    if value = '' or length(value) > longest then
        raise exception '% "%" must be text of 1 to % characters', name, left(value, 60), longest
            using errcode = 'invalid_parameter_value', hint = 'Leave it out if there is none.';
    end if;
end $$;

-- A number as the program prints it: 1.0, 1e+16, 5e-324. A whole number has all its digits.
create function sereno.digest_number(value text) returns text
    language plpgsql immutable set extra_float_digits = 1 as $$
declare
    parts   text[];
    digits  text;
    point   integer;
begin
    if strpos(value, '.') = 0 then
        return value;
    end if;
    parts := regexp_match(value::double precision::text, '^(-?)([0-9]+)\.?([0-9]*)(?:e([-+][0-9]+))?$');
    -- All digits that count, and how many of them stand before the point.
    digits := ltrim(parts[2] || parts[3], '0');
    point := length(parts[2]) + coalesce(parts[4], '0')::integer - (length(parts[2] || parts[3]) - length(digits));
    digits := rtrim(digits, '0');
    if digits = '' then
        return parts[1] || '0.0';
    elsif point > 16 or point < -3 then
        return parts[1] || left(digits, 1) || case when length(digits) > 1 then '.' || substr(digits, 2) else '' end
               || 'e' || case when point > 0 then '+' else '-' end
               || case when abs(point - 1) < 10 then '0' else '' end || abs(point - 1);
    elsif point <= 0 then
        return parts[1] || '0.' || repeat('0', -point) || digits;
    end if;
    return parts[1] || rpad(left(digits, point), point, '0') || '.' || coalesce(nullif(substr(digits, point + 1), ''), '0');
end $$;

-- What an event is gathered with: its type, and the value of one field as the program prints it.
create function sereno.digest_key(type text, field text, payload jsonb) returns text
    language plpgsql immutable as $$
declare
    value jsonb := payload -> field;
begin
    if field is null then
        return type;
    elsif jsonb_typeof(value) in ('array', 'object') then
        raise exception 'events of type % are gathered by "%", and that is an % here', type, field, jsonb_typeof(value)
            using errcode = 'invalid_parameter_value', hint = 'It is a text, a number, true, false or null.';
    end if;
    return left(type || ':' || case coalesce(jsonb_typeof(value), 'null')
        when 'null' then 'None'
        when 'boolean' then initcap(value::text)
        when 'number' then sereno.digest_number(value::text)
        when 'string' then value #>> '{}'
    end, 500);
end $$;

-- What the program would refuse. The fields of a payload are not known here: a worker looks at them.
create function sereno.check_event(type text, payload jsonb, named text[], at timestamptz, ttl interval, said jsonb) returns void
    language plpgsql stable as $$
declare
    wrong  text;
    hint   text;
begin
    if said is null then
        wrong := format('no event "%s" is declared: start a worker of the application that declares it once', type);
        hint := 'Those that are known: select name from sereno.event_types';
    elsif payload is null or jsonb_typeof(payload) <> 'object' then
        wrong := format('event %s: the payload must be an object with named fields, not %s', type,
                        coalesce(left(payload::text, 60), 'null'));
        hint := 'For one without any, write ''{}''.';
    elsif octet_length(payload::text) > 65536 then
        wrong := format('event %s: %s bytes of payload, the limit is 65536', type, octet_length(payload::text));
        hint := 'Store it elsewhere, and tell where it is.';
    elsif cardinality(named) = 0 then
        wrong := format('event %s: "to" is empty, and nobody would be told', type);
        hint := 'Leave it out to tell all who want it.';
    elsif cardinality(named) > 10000 then
        wrong := format('event %s: %s recipients by name, at most 10000', type, cardinality(named));
        hint := 'Leave "to" out, and let preferences say who wants it.';
    elsif array_position(named, null) is not null then
        wrong := format('event %s: a key in "to" is null', type);
        hint := 'Leave it out, or name somebody.';
    elsif at not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then
        wrong := format('event %s: at is out of range: 1900 to 9999', type);
        hint := 'Leave it out for now.';
    elsif ttl < interval '0' or not isfinite(ttl) then
        wrong := format('event %s: ttl must be finite and not negative', type);
        hint := 'Leave it out for what the code says.';
    else
        perform sereno.check_text('to', name) from unnest(named) as name;
        return;
    end if;
    raise exception '%', wrong using errcode = 'invalid_parameter_value', hint = hint;
end $$;

-- Writes an event in the caller's transaction, and the job that tells people of it; answers its id. The second one of the same
-- type, tenant, subject and key gets the id of the first, and nothing is made.
--   select sereno.notify('order.paid', '{"order": 7}', "to" => array['user:7'], subject => '7');
create function sereno.notify(
    type text,
    payload jsonb,
    "to" text[] default null,
    subject text default null,
    key text default null,
    tenant text default null,
    at timestamptz default null,
    ttl interval default null
) returns bigint
    language plpgsql as $$
declare
    said      jsonb := (select definition from sereno.event_types where name = notify.type);
    due       timestamptz := coalesce(at, sereno.now());
    seconds   double precision := coalesce(extract(epoch from ttl), (said ->> 'ttl')::double precision);
    -- Without a name of its own it is told apart from every other.
    own_key   text := case when subject is null and key is null then replace(gen_random_uuid()::text, '-', '') else key end;
    gathered  text;
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, said);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant)) as given(name, value);
    if said ? 'digest' then
        gathered := sereno.digest_key(type, said -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, said ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(said -> 'channels')),
                (select array_agg(distinct name collate "C") from unnest("to") as named(name)),
                coalesce((said ->> 'critical')::boolean, false), coalesce((said ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), said ->> 'note', said -> 'steps',
                (said -> 'throttle' ->> 'most')::integer, (said -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (said -> 'digest' ->> 'seconds')::double precision end, true)
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- The name of the task is the same in every schema, and this file is not.
            perform sereno.enqueue('sereno' || '.fan_out', jsonb_build_object('event', number), queue => 'notifications',
                                   run_at => at, tenant => tenant);
            return number;
        end if;
        select id into number from sereno.events e
        where e.type = notify.type and e.tenant = coalesce(notify.tenant, '')
          and e.subject is not distinct from notify.subject and e.key is not distinct from own_key;
        -- Deleted in between: the name is free again, try once more.
        exit when number is not null;
    end loop;
    return number;
end $$;

-- Whether it is the name of a zone, in exactly these letters. A setting that ends with this function tells: PostgreSQL writes
-- the name in its own letters, and what is no name but a rule, all in capitals.
create function sereno.is_zone(zone text) returns boolean
    language plpgsql stable strict set timezone = 'UTC' as $$
begin
    perform set_config('timezone', zone, true);
    return current_setting('timezone') = zone
       and (zone <> upper(zone) or zone !~ '[0-9]' or exists (select from pg_timezone_names where name = zone));
exception when invalid_parameter_value then
    return false;
end $$;

-- Makes a recipient, or changes what is given; null leaves it as it is. Answers the id.
create function sereno.put_recipient(
    key text, tenant text default null, locale text default null, zone text default null, data jsonb default null
) returns bigint
    language plpgsql as $$
declare
    number bigint;
begin
    if key is null then
        raise exception 'a recipient needs a key' using errcode = 'invalid_parameter_value',
            hint = 'It is the name that your application knows them by, such as user:7.';
    elsif not sereno.is_zone(zone) then
        raise exception 'there is no time zone "%"', left(zone, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is a name such as Europe/Riga: select name from pg_timezone_names';
    elsif jsonb_typeof(data) <> 'object' then
        raise exception 'data of recipient % must be an object', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"name": "Ada"}; leave it out if there is none.';
    elsif octet_length(data::text) > 98304 then
        raise exception 'data of recipient % has % bytes', left(key, 60), octet_length(data::text)
            using errcode = 'invalid_parameter_value', hint = 'At most 96 KiB: store it elsewhere, keep a reference.';
    end if;
    perform sereno.check_text('key', key), sereno.check_text('tenant', tenant);
    insert into sereno.recipients as r (tenant, key, locale, zone, data)
    values (coalesce(put_recipient.tenant, ''), put_recipient.key, put_recipient.locale, put_recipient.zone, put_recipient.data)
    on conflict on constraint recipients_key do update
    set locale = coalesce(excluded.locale, r.locale), zone = coalesce(excluded.zone, r.zone),
        data = coalesce(excluded.data, r.data), changed_at = sereno.now()
    returning id into number;
    return number;
end $$;

create function sereno.recipient_id(key text, tenant text) returns bigint
    language plpgsql stable as $$
declare
    number bigint := (select id from sereno.recipients r
                      where r.tenant = coalesce(recipient_id.tenant, '') and r.key = recipient_id.key);
begin
    if number is null then
        raise exception 'there is no recipient "%"', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Make them first: select sereno.put_recipient(…)';
    end if;
    return number;
end $$;

-- One way to reach somebody; answers its id. One that was invalid and is given again is good again: the owner knows better.
-- One that unsubscribed is not. Whether its channel can reach it is not known here.
create function sereno.put_address(
    recipient text, channel text, address text, tenant text default null, keys jsonb default null, state text default 'active'
) returns bigint
    language plpgsql as $$
declare
    number bigint;
begin
    if channel is null or address is null then
        raise exception 'an address needs a channel and a text' using errcode = 'invalid_parameter_value',
            hint = 'Such as ''email'', ''ada@example.org''.';
    elsif state is null or state not in ('active', 'unverified', 'invalid', 'unsubscribed') then
        raise exception 'an address cannot be "%"', left(state, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is active, unverified, invalid or unsubscribed.';
    elsif jsonb_typeof(keys) <> 'object' then
        raise exception 'keys of an address of % must be an object', left(channel, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"secrets": ["whsec_…"]}; leave it out if there are none.';
    end if;
    perform sereno.check_text('channel', channel), sereno.check_text('address', address, 2000);
    insert into sereno.addresses as a (recipient_id, channel, address, keys, state)
    values (sereno.recipient_id(recipient, tenant), put_address.channel, put_address.address, nullif(put_address.keys, '{}'),
            put_address.state)
    on conflict on constraint addresses_once do update
    set keys = coalesce(excluded.keys, a.keys),
        state = case when a.state = 'unsubscribed' then a.state else excluded.state end,
        reason = case when a.state = 'unsubscribed' then a.reason end, changed_at = sereno.now()
    returning id into number;
    return number;
end $$;
