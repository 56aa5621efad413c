-- An event that is created in SQL, or over HTTP, has the trace of its cause, as one that is created in Python.

-- A parameter cannot be added to a function: it is replaced by one that accepts all calls of the former.
drop function sereno.notify(text, jsonb, text[], text, text, text, timestamptz, interval, double precision);

-- Write an event in the caller's transaction, with the job that fans it out; return its id. A second event with the
-- same type, tenant, subject and key gets the id of the first, and nothing is written.
--   select sereno.notify('order.paid', '{"order": 7}', "to" => array['user:7'], subject => '7');
create function sereno.notify(
    type text,
    payload jsonb,
    "to" text[] default null,
    subject text default null,
    key text default null,
    tenant text default null,
    at timestamptz default null,
    ttl interval default null,
    rate double precision default null,
    trace text default null
) returns bigint
    language plpgsql as $$
declare
    declared  jsonb := (select definition from sereno.event_types where name = notify.type);
    due       timestamptz := coalesce(at, sereno.clock_now());
    seconds   double precision := coalesce(extract(epoch from ttl), (declared ->> 'ttl')::double precision);
    -- Without a subject and key, a random key keeps the event distinct from every other.
    own_key   text := case when subject is null and key is null then replace(gen_random_uuid()::text, '-', '') else key end;
    gathered  text;
    of_topic  text;
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, declared);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant), ('trace', trace)) as given(name, value);
    of_topic := sereno.topic_of(type, "to");
    if rate not between 1 / 3600.0 and 1000000 then
        raise exception 'event %: rate is out of range: one in an hour to a million in a second', type
            using errcode = 'invalid_parameter_value', hint = 'It is a number of deliveries in a second; leave it out for no limit.';
    end if;
    if declared ? 'digest' then
        gathered := sereno.digest_key(type, declared -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, topic, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked, rate,
                                   variants, trace)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, declared ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(declared -> 'channels')),
                case when of_topic is null then (select array_agg(distinct name collate "C") from unnest("to") as named(name)) end, of_topic,
                coalesce((declared ->> 'critical')::boolean, false), coalesce((declared ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), declared ->> 'note', declared -> 'steps',
                (declared -> 'throttle' ->> 'most')::integer, (declared -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (declared -> 'digest' ->> 'seconds')::double precision end, true, notify.rate,
                declared -> 'variants', notify.trace)
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- Not by `enqueue`, which refuses sereno's own tasks to some logins.
            perform sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
                'task', 'sereno' || '.fan_out', 'args', jsonb_build_object('event', number),
                'queue', coalesce(declared ->> 'queue', 'notifications'), 'run_at', at, 'tenant', tenant, 'trace', trace,
                'by_rules', true)));
            return number;
        end if;
        select id into number from sereno.events e
        where e.type = notify.type and e.tenant = coalesce(notify.tenant, '')
          and e.subject is not distinct from notify.subject and e.key is not distinct from own_key;
        -- The event was deleted in between, so the key is free again: try again.
        exit when number is not null;
    end loop;
    return number;
end $$;

comment on function sereno.notify is
    'Write an event in the current transaction, and return its id. A second call with the same type, tenant, '
    'subject and key returns the id of the first. "to": keys of recipients, or one topic, such as topic:tender:r42; '
    'without it, everyone who wants the event. at: not sent before then. ttl: not sent after that. rate: deliveries in a '
    'second. trace: links the event to its cause.';
