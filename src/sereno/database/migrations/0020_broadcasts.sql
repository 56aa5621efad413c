-- Broadcasts: an event whose deliveries become due at a rate, that can be cancelled half-way, and whose message has variants.

-- Null for most events. `rate`: deliveries in a second. `paced_from`: when the first of them became due; `paced`: the number
-- of deliveries that have their due time. `cancelled_at`: nothing is sent from then on. `variants`: {"salt", "bounds"}, where
-- bounds are [[name, bound]] in ascending order, the last bound 2^32.
alter table sereno.events
    add column rate double precision,
    add column paced_from timestamptz,
    add column paced bigint,
    add column cancelled_at timestamptz,
    add column variants jsonb;

-- Return the variant of a recipient's message: the first whose bound is above the hash of the salt and the recipient.
-- The Python function `variant_of` is the same.
create function sereno.variant_of(variants jsonb, recipient bigint) returns text
    language sql immutable parallel safe as $$
    select bound ->> 0 from jsonb_array_elements(variants -> 'bounds') with ordinality as each(bound, place)
    where ('x' || encode(substr(sha256(convert_to((variants ->> 'salt') || ':' || recipient, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
          < (bound ->> 1)::bigint
    order by place limit 1
    $$;

-- A parameter cannot be added to a function: it is replaced by one that accepts all calls of the former.
drop function sereno.notify(text, jsonb, text[], text, text, text, timestamptz, interval);

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
    rate double precision default null
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
    from (values ('subject', subject), ('key', key), ('tenant', tenant)) as given(name, value);
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
                                   variants)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, declared ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(declared -> 'channels')),
                case when of_topic is null then (select array_agg(distinct name collate "C") from unnest("to") as named(name)) end, of_topic,
                coalesce((declared ->> 'critical')::boolean, false), coalesce((declared ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), declared ->> 'note', declared -> 'steps',
                (declared -> 'throttle' ->> 'most')::integer, (declared -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (declared -> 'digest' ->> 'seconds')::double precision end, true, notify.rate, declared -> 'variants')
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- Not by `enqueue`, which refuses sereno's own tasks to some logins.
            perform sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
                'task', 'sereno' || '.fan_out', 'args', jsonb_build_object('event', number),
                'queue', coalesce(declared ->> 'queue', 'notifications'), 'run_at', at, 'tenant', tenant, 'by_rules', true)));
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

create or replace view sereno.events_v1 as
select id, type, nullif(tenant, '') as tenant, subject, key, category, payload::jsonb as payload, channels, audience, critical, opt_in,
       due_at, expires_at, created_at, matched_at, note,
       case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32) else trace end as trace,
       topic, rate, cancelled_at
from sereno.events;

comment on column sereno.events_v1.rate is 'deliveries that become due in a second; null: no limit';
comment on column sereno.events_v1.cancelled_at is 'cancelled: nothing was sent from then on';

comment on function sereno.notify is
    'Write an event in the current transaction, and return its id. A second call with the same type, tenant, '
    'subject and key returns the id of the first. "to": keys of recipients, or one topic, such as topic:tender:r42; '
    'without it, everyone who wants the event. at: not sent before then. ttl: not sent after that. rate: deliveries in a '
    'second.';
