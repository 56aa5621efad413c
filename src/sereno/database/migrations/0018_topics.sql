-- Topics: recipients subscribe to them, and an event can be for the subscribers of one. A topic has no row of its own: it
-- exists while it has a subscriber.

-- `tenant`: of the recipient. The collation makes the topics with a prefix one range of the index.
create table sereno.subscriptions (
    tenant        text not null,
    topic         text collate "C" not null,
    recipient_id  bigint not null references sereno.recipients on delete cascade,
    created_at    timestamptz not null default sereno.now(),
    -- The fan-out of an event reads the subscribers of its topic in this order.
    constraint subscriptions_once primary key (tenant, topic, recipient_id)
);

create index subscriptions_of_recipient on sereno.subscriptions (recipient_id, topic);

-- The topic whose subscribers are the audience; `audience` is then null.
alter table sereno.events add column topic text;

-- Subscribe a recipient to a topic; return whether the subscription is new.
--   select sereno.subscribe('tender:r42', 'user:7');
create function sereno.subscribe(topic text, recipient text, tenant text default null) returns boolean
    language plpgsql as $$
begin
    if topic is null or recipient is null then
        raise exception 'a subscription needs a topic and a recipient' using errcode = 'invalid_parameter_value',
            hint = 'Such as ''tender:r42'', ''user:7''.';
    end if;
    perform sereno.check_text('topic', topic), sereno.check_text('recipient', recipient), sereno.check_text('tenant', tenant);
    insert into sereno.subscriptions (tenant, topic, recipient_id)
    values (coalesce(subscribe.tenant, ''), subscribe.topic, sereno.recipient_id(recipient, subscribe.tenant))
    on conflict on constraint subscriptions_once do nothing;
    return found;
end $$;

-- End the subscription of a recipient to a topic; return whether there was one.
create function sereno.unsubscribe(topic text, recipient text, tenant text default null) returns boolean
    language plpgsql as $$
begin
    delete from sereno.subscriptions s
    where s.tenant = coalesce(unsubscribe.tenant, '') and s.topic = unsubscribe.topic
      and s.recipient_id = (select id from sereno.recipients r
                            where r.tenant = coalesce(unsubscribe.tenant, '') and r.key = unsubscribe.recipient);
    return found;
end $$;

-- Return the topic that an audience names, as in array['topic:tender:r42'], or null. A topic stands alone.
create function sereno.topic_of(type text, named text[]) returns text
    language plpgsql immutable as $$
declare
    topic text := (select substr(name, 7) from unnest(named) as name where starts_with(name, 'topic:') limit 1);
begin
    if topic is null then
        return null;
    elsif cardinality(named) > 1 then
        raise exception 'event %: a topic in "to" stands alone, without other topics and recipients', type
            using errcode = 'invalid_parameter_value', hint = 'Write one event for each.';
    end if;
    perform sereno.check_text('topic', topic);
    return topic;
end $$;

-- Write an event in the caller's transaction, with the job that fans it out; return its id. A second event with the
-- same type, tenant, subject and key gets the id of the first, and nothing is written.
--   select sereno.notify('order.paid', '{"order": 7}', "to" => array['user:7'], subject => '7');
create or replace function sereno.notify(
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
    if declared ? 'digest' then
        gathered := sereno.digest_key(type, declared -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, topic, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, declared ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(declared -> 'channels')),
                case when of_topic is null then (select array_agg(distinct name collate "C") from unnest("to") as named(name)) end, of_topic,
                coalesce((declared ->> 'critical')::boolean, false), coalesce((declared ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), declared ->> 'note', declared -> 'steps',
                (declared -> 'throttle' ->> 'most')::integer, (declared -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (declared -> 'digest' ->> 'seconds')::double precision end, true)
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
       topic
from sereno.events;

comment on column sereno.events_v1.topic is 'the topic whose subscribers are the audience';

comment on function sereno.subscribe is
    'Subscribe a recipient to a topic, and return whether the subscription is new. The recipient must exist.';
comment on function sereno.unsubscribe is
    'End the subscription of a recipient to a topic, and return whether there was one.';
comment on function sereno.notify is
    'Write an event in the current transaction, and return its id. A second call with the same type, tenant, '
    'subject and key returns the id of the first. "to": keys of recipients, or one topic, such as topic:tender:r42; '
    'without it, everyone who wants the event. at: not sent before then. ttl: not sent after that.';
