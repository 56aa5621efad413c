-- Notifications: recipients, preferences, events, deliveries, receipts and their statistics, and the same from SQL.

-- Recipients, by the key that the application knows them by.
create table sereno.recipients (
    id          bigint generated always as identity primary key,
    -- Here and in the tables below: empty for rows without a tenant, so that an index finds them.
    tenant      text not null default '',
    key         text not null,
    locale      text,
    zone        text,
    -- 64 KiB in the JSON of a request; PostgreSQL's text form, with spaces, is up to half as large again.
    data        jsonb constraint recipients_data check (octet_length(data::text) <= 98304),
    created_at  timestamptz not null default sereno.now(),
    changed_at  timestamptz not null default sereno.now(),
    constraint recipients_key unique (tenant, key)
);

-- The fan-out of an event reads its audience in this order.
create index recipients_in_order on sereno.recipients (tenant, id);

-- Addresses of recipients. `keys`: data beside the address, such as a secret; never shown.
create table sereno.addresses (
    id            bigint generated always as identity primary key,
    recipient_id  bigint not null references sereno.recipients on delete cascade,
    channel       text not null,
    address       text not null,
    keys          jsonb,
    state         text not null default 'active' check (state in ('active', 'unverified', 'invalid', 'unsubscribed')),
    reason        text,
    created_at    timestamptz not null default sereno.now(),
    changed_at    timestamptz not null default sereno.now(),
    constraint addresses_once unique (recipient_id, channel, address)
);

create index addresses_by_text on sereno.addresses (channel, address);

-- Preferences of a recipient, or a tenant's defaults. A null column expresses no preference; each aspect is decided
-- by the row with the largest weight that has a value for it.
create table sereno.preferences (
    id            bigint generated always as identity primary key,
    tenant        text not null default '',
    recipient_id  bigint references sereno.recipients on delete cascade,
    category      text,
    event         text,
    channel       text,
    wanted        boolean,
    -- The filter as it was written, and as it is matched.
    filter        jsonb,
    condition     jsonpath,
    quiet         jsonb,
    weight        smallint not null generated always as (
        (case when recipient_id is null then 0 else 100 end + case when event is null then 0 else 20 end
         + case when category is null then 0 else 10 end + case when channel is null then 0 else 1 end)::smallint) stored,
    changed_at    timestamptz not null default sereno.now(),
    constraint preferences_once unique nulls not distinct (recipient_id, tenant, event, category, channel),
    constraint preferences_filter check ((filter is null) = (condition is null))
);

create index preferences_default on sereno.preferences (tenant) where recipient_id is null;

-- Events, written in the transaction that made them true. Unique by (type, tenant, subject, key). `audience`: keys of
-- recipients, or null for all who want it. `walked`: the last recipient for whom deliveries were made. `unchecked`:
-- written by SQL, so a worker checks whether the payload has the fields that the code expects. `trace`: the trace of
-- the change that made the event true.
create table sereno.events (
    id          bigint generated always as identity primary key,
    type        text not null,
    tenant      text not null default '',
    subject     text,
    key         text,
    category    text,
    payload     sereno.bounded_json not null,
    channels    text[] not null,
    audience    text[],
    critical    boolean not null default false,
    opt_in      boolean not null default false,
    -- Other channels for recipients whom the first did not reach: [{"from", "to", "after", "unless"}].
    steps       jsonb,
    -- At most this number of events of the type per recipient and channel, in this number of seconds.
    throttle_most     integer,
    throttle_seconds  double precision,
    -- The key of the digest, and the number of seconds for which it is collected.
    digest          text,
    digest_seconds  double precision,
    due_at      timestamptz not null default sereno.now(),
    expires_at  timestamptz,
    created_at  timestamptz not null default sereno.now(),
    walked      bigint not null default 0,
    matched_at  timestamptz,
    note        text,
    unchecked   boolean not null default false,
    trace       text,
    constraint events_once unique nulls not distinct (type, tenant, subject, key)
);

create index events_unmatched on sereno.events (due_at) where matched_at is null;
create index events_trace on sereno.events (hashtext(trace), id) where trace is not null;
create index events_subject on sereno.events (subject, id) where subject is not null;

-- Deliveries, the source of truth of what was sent: one row per event, recipient, channel and address. `account`: the
-- tenant whose credentials are used. `job_id`: the job that is sending the delivery, or was when contact was lost;
-- `attempts` tells its tries apart.
-- No column that changes is indexed, and fillfactor 34 leaves space for two larger versions of each row, so that a change
-- of state stays on its page (a heap-only update).
create table sereno.deliveries (
    id             bigint generated always as identity primary key,
    event_id       bigint not null,
    recipient_id   bigint not null,
    address_id     bigint,
    channel        text not null,
    account        text not null default '',
    tenant         text not null default '',
    state          text not null default 'pending' check (state in (
        'pending', 'sending', 'sent', 'delivered', 'read', 'bounced',
        'skipped', 'failed', 'invalid', 'expired', 'dead', 'unknown')),
    reason         text,
    due_at         timestamptz not null,
    expires_at     timestamptz,
    attempts       smallint not null default 0,
    unknowns       smallint not null default 0,
    job_id         bigint,
    provider_id    text,
    error_code     text,
    error_message  text,
    receipt_at     timestamptz,
    sent_at        timestamptz,
    -- The digest of the delivery, and the delivery that sends the message for all of them.
    digest         text,
    digest_of      bigint,
    created_at     timestamptz not null default sereno.now(),
    changed_at     timestamptz not null default sereno.now(),
    constraint deliveries_once unique nulls not distinct (event_id, recipient_id, channel, address_id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, fillfactor = 34);

create index deliveries_of_recipient on sereno.deliveries (recipient_id, id);
-- The deliveries of a recipient's digest; these columns never change.
create index deliveries_gathered on sereno.deliveries (recipient_id, digest, id) where digest is not null;

-- The states of deliveries that did not arrive, or may not have. Not `skipped`: those were not to be sent.
create function sereno.failed_states() returns text[]
    language sql immutable parallel safe as $$ select '{bounced,failed,invalid,expired,dead,unknown}'::text[] $$;

-- Deliveries in these states, so that lists of them do not read the others. A partial index on the state would do the
-- same, but with one no change of a state would be heap-only: a delivery that is sent would write 830 bytes of log instead
-- of 280. With this table, only those that fail cost more. Triggers keep it, in the transaction of the change.
create table sereno.failed_deliveries (
    delivery_id  bigint primary key,
    state        text not null,
    channel      text not null,
    tenant       text not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index failed_deliveries_of_state on sereno.failed_deliveries (state, delivery_id);
create index failed_deliveries_of_channel on sereno.failed_deliveries (channel, state, delivery_id);
create index failed_deliveries_of_tenant on sereno.failed_deliveries (tenant, state, delivery_id) where tenant <> '';

-- Writes or deletes the row of a delivery that failed, is sent again, or is deleted. The delivery itself is locked.
create function sereno.keep_failed_delivery() returns trigger
    language plpgsql as $$
begin
    if tg_op = 'DELETE' or new.state <> all(sereno.failed_states()) then
        delete from sereno.failed_deliveries where delivery_id = old.id;
    else
        insert into sereno.failed_deliveries (delivery_id, state, channel, tenant)
        values (new.id, new.state, new.channel, new.tenant)
        on conflict (delivery_id) do update set state = excluded.state;
    end if;
    return null;
end $$;

-- The conditions keep the function away from deliveries that arrive: most do.
create trigger failed_delivery_new after insert on sereno.deliveries
    for each row when (new.state = any(sereno.failed_states())) execute function sereno.keep_failed_delivery();
create trigger failed_delivery_changed after update of state on sereno.deliveries
    for each row when (old.state <> new.state and (old.state = any(sereno.failed_states()) or new.state = any(sereno.failed_states())))
    execute function sereno.keep_failed_delivery();
create trigger failed_delivery_gone after delete on sereno.deliveries
    for each row when (old.state = any(sereno.failed_states())) execute function sereno.keep_failed_delivery();

-- Deliveries that wait to be sent, or for their status to be requested, are queued in batches: a hundred of them are
-- one row that is inserted and deleted. A delivery in state `pending` or `sending` is in a `send` batch; one whose
-- provider can be polled is in an `ask` batch. The delivery row is the truth: a delivery that no longer waits is
-- skipped.
create table sereno.batches (
    id          bigint generated always as identity primary key,
    purpose     text not null check (purpose in ('send', 'ask')),
    channel     text not null,
    account     text not null,
    -- Of the jobs that send it: the deliveries of a service are for its workers only.
    queue       text not null default 'notifications',
    due_at      timestamptz not null,
    -- The job that is sending them, and since when.
    job_id      bigint,
    taken_at    timestamptz,
    -- Providers are not polled after this instant.
    ends_at     timestamptz,
    -- True when some of the deliveries belong to a digest.
    gathers     boolean not null default false,
    deliveries  bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index batches_due on sereno.batches (purpose, channel, account, queue, due_at, id) where job_id is null;
create index batches_gathering on sereno.batches (channel, account, queue, due_at) where gathers and job_id is null;
create index batches_taken on sereno.batches (channel, account) where job_id is not null;

-- Ids of our messages at providers that send receipts by themselves.
create table sereno.message_ids (
    channel      text not null,
    account      text not null,
    provider_id  text not null,
    delivery_id  bigint not null,
    primary key (channel, account, provider_id, delivery_id)
);

-- Receipts that arrived before the outcome of their message was stored. Retained for a few minutes.
create table sereno.early_receipts (
    id           bigint generated always as identity primary key,
    channel      text not null,
    account      text not null,
    provider_id  text not null,
    receipt      jsonb not null,
    at           timestamptz not null default sereno.now()
);

-- Receipts of providers; the unique key stores a repeated receipt once for each delivery. Ids of receipts are unique in
-- an account only.
create table sereno.receipts (
    id           bigint generated always as identity primary key,
    channel      text not null,
    receipt_id   text not null,
    delivery_id  bigint,
    outcome      text not null,
    code         text,
    at           timestamptz not null default sereno.now(),
    constraint receipts_once unique (channel, receipt_id, delivery_id)
);

create index receipts_of_delivery on sereno.receipts (delivery_id);

-- Paused channels, for all accounts or for one, until an operator has fixed the cause.
create table sereno.channel_pauses (
    channel  text not null,
    account  text not null,
    reason   text not null,
    since    timestamptz not null default sereno.now(),
    primary key (channel, account)
);

-- Credentials of a tenant for a channel. Never shown.
create table sereno.accounts (
    channel     text not null,
    tenant      text not null,
    settings    jsonb not null,
    changed_at  timestamptz not null default sereno.now(),
    primary key (channel, tenant)
);

-- The in-app inbox.
create table sereno.inbox (
    id            bigint generated always as identity primary key,
    recipient_id  bigint not null references sereno.recipients on delete cascade,
    delivery_id   bigint not null unique,
    event         text not null,
    title         text not null,
    body          text not null,
    data          jsonb,
    created_at    timestamptz not null default sereno.now(),
    seen_at       timestamptz,
    read_at       timestamptz,
    archived_at   timestamptz
);

create index inbox_of_recipient on sereno.inbox (recipient_id, id desc) where archived_at is null;
create index inbox_unread on sereno.inbox (recipient_id) where read_at is null and archived_at is null;
-- Archived messages of one recipient.
create index inbox_archived on sereno.inbox (recipient_id, id desc) where archived_at is not null;

-- Message templates changed at run time; they take precedence over the files of the project. Empty locale or tenant:
-- any.
create table sereno.templates (
    event       text not null,
    channel     text not null,
    locale      text not null default '',
    tenant      text not null default '',
    part        text not null check (part in ('title', 'body', 'html', 'options')),
    source      text not null,
    changed_at  timestamptz not null default sereno.now(),
    changed_by  text not null,
    primary key (event, channel, locale, tenant, part)
);

-- Event types as the code declares them, for events written by SQL. The last declaration applies.
create table sereno.event_types (
    name         text primary key,
    -- Fields: channels, note, category, critical, opt_in, ttl, steps, throttle {most, seconds}, digest {key,
    -- seconds}, queue (of its jobs; null for `notifications`).
    definition   jsonb not null,
    declared_at  timestamptz not null default sereno.now()
);

-- Return the time zone if this server knows it, else UTC: one row with an unknown zone must not stop the fan-out.
create function sereno.known_zone(zone text) returns text
    language plpgsql stable as $$
begin
    perform now() at time zone zone;
    return coalesce(zone, 'UTC');
exception when others then
    return 'UTC';
end $$;

-- Return the end of the quiet hours that apply at this instant in this zone; null when none do. Spans are {"start",
-- "end", "days"}; a day is the one on which the span starts, 1 for Monday. The sender checks again before it sends.
create function sereno.quiet_until(spans jsonb, zone text, moment timestamptz) returns timestamptz
    language sql stable as $$
    select max(ends)
    from jsonb_to_recordset(spans) as span(start time, "end" time, days integer[])
    cross join (select sereno.known_zone(zone) as here) as place
    cross join lateral (select (moment at time zone here)::date as today) as local
    cross join lateral (values (today - 1), (today)) as first(day)
    cross join lateral (
        select (day + start) at time zone here as begins,
               (day + case when span."end" <= start then 1 else 0 end + span."end") at time zone here as ends
    ) as instant
    where begins <= moment and moment < ends
      and (days is null or extract(isodow from day)::integer = any(days))
    $$;

-- The first value that is not null. The function is called only for groups with a second one.
create function sereno.keep_first(kept anyelement, further anyelement) returns anyelement
    language sql immutable strict parallel safe as 'select kept';

create aggregate sereno.first(value anyelement) (sfunc = sereno.keep_first, stype = anyelement, parallel = safe);

-- Return the preferences for an event on a channel: each aspect from the row with the largest weight that has a
-- value.
create function sereno.choice(
    of_recipient bigint, of_tenant text, of_category text, of_event text, by_channel text,
    out wanted boolean, out condition jsonpath, out quiet jsonb
)
    language sql stable as $$
    select sereno.first(p.wanted order by weight desc), sereno.first(p.condition order by weight desc),
           sereno.first(p.quiet order by weight desc)
    from (select * from sereno.preferences where recipient_id = of_recipient
          union all
          select * from sereno.preferences where recipient_id is null and tenant = of_tenant) as p
    where (p.category is null or p.category = of_category) and (p.event is null or p.event = of_event)
      and (p.channel is null or p.channel = by_channel)
    $$;

-- Take the next batches of a channel and queue, up to `most` deliveries; none of a paused channel. The last batch is split
-- where it does not fit, so fewer deliveries than requested mean that no more are due, and callers rely on it. With
-- `again`, the batches stay queued and are due again after that interval; without, they belong to the job until it
-- finishes them.
create function sereno.take_batches(
    of_purpose text, by_channel text, of_account text, by_job bigint, most integer, again interval default null,
    in_queue text default 'notifications'
) returns table (batch bigint, ids bigint[])
    language plpgsql as $$
declare
    waiting cursor for
        select b.id, b.deliveries, b.due_at, b.ends_at, b.gathers from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.queue = in_queue and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id
        for update skip locked;
    found_one record;
    remaining integer := most;
    waited boolean := false;
    locked_batch bigint;
    taken bigint[] := '{}';
begin
    if exists (select from sereno.channel_pauses p where p.channel = by_channel and p.account in ('', of_account)) then
        return;
    end if;
    -- One transaction at a time takes batches with digests: two would send two messages of one digest.
    if of_purpose = 'send' and exists (select from sereno.batches b where b.gathers and b.job_id is null and b.channel = by_channel
                 and b.account = of_account and b.queue = in_queue and b.due_at <= sereno.now()) then
        perform pg_advisory_xact_lock(hashtext('sereno gathers by ' || by_channel), hashtext(of_account));
    end if;
    loop
        -- A row that was taken and committed after the cursor's snapshot is locked, and only then found to belong to
        -- another job; SKIP LOCKED does not help there. Such locks, held while this transaction waited, met those of
        -- the jobs that own these batches: a deadlock. So a caller that found nothing releases every lock before it
        -- waits (by the rollback of this block), waits for one batch, and releases that one too.
        begin
            open waiting;
            while remaining > 0 loop
                fetch waiting into found_one;
                exit when not found;
                batch := found_one.id;
                ids := found_one.deliveries[:remaining];
                if cardinality(found_one.deliveries) > remaining then
                    update sereno.batches b set deliveries = found_one.deliveries[remaining + 1:] where b.id = found_one.id;
                    insert into sereno.batches (purpose, channel, account, queue, due_at, ends_at, gathers, deliveries)
                    values (of_purpose, by_channel, of_account, in_queue, found_one.due_at, found_one.ends_at, found_one.gathers, ids)
                    returning id into batch;
                end if;
                taken := taken || batch;
                remaining := remaining - cardinality(ids);
                return next;
            end loop;
            close waiting;
            exit when remaining <= 0 or remaining < most or waited;
            raise exception using errcode = 'SRWT1', message = 'no batch was free';
        exception when sqlstate 'SRWT1' then
            waited := true;
        end;
        -- Other transactions have locked what is due, and may leave some of it: wait for them once.
        select b.id into locked_batch from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.queue = in_queue and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id limit 1;
        exit when locked_batch is null;
        begin
            perform from sereno.batches b where b.id = locked_batch for update;
            raise exception using errcode = 'SRWT1', message = 'the batch is free, or gone';
        exception when sqlstate 'SRWT1' then
            null;
        end;
    end loop;
    update sereno.batches b
    set job_id = case when again is null then by_job end, taken_at = sereno.now(),
        due_at = case when again is null then b.due_at else sereno.now() + again end
    where b.id = any(taken);
end $$;

-- Refuse an empty or too long text, as the Python client does. A null is not checked.
create function sereno.check_text(name text, value text, longest integer default 500) returns void
    language plpgsql immutable as $$
begin
    if value = '' or length(value) > longest then
        raise exception '% "%" must be text of 1 to % characters', name, left(value, 60), longest
            using errcode = 'invalid_parameter_value', hint = 'Leave it out if there is none.';
    end if;
end $$;

-- Return a number as Python prints it: 1.0, 1e+16, 5e-324. An integer keeps all its digits.
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
    -- The significant digits, and how many of them are before the decimal point.
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

-- Return the digest key of an event: its type, and the value of one field as Python prints it.
create function sereno.digest_key(type text, field text, payload jsonb) returns text
    language plpgsql immutable as $$
declare
    value jsonb := payload -> field;
begin
    if field is null then
        return type;
    elsif jsonb_typeof(value) in ('array', 'object') then
        raise exception 'events of type % are collected by the field "%", which is an % here', type, field, jsonb_typeof(value)
            using errcode = 'invalid_parameter_value', hint = 'It must be a text, a number, true, false or null.';
    end if;
    return left(type || ':' || case coalesce(jsonb_typeof(value), 'null')
        when 'null' then 'None'
        when 'boolean' then initcap(value::text)
        when 'number' then sereno.digest_number(value::text)
        when 'string' then value #>> '{}'
    end, 500);
end $$;

-- Refuse what the Python client refuses. The fields of a payload are not known here: a worker checks them.
create function sereno.check_event(type text, payload jsonb, named text[], at timestamptz, ttl interval, definition jsonb) returns void
    language plpgsql stable as $$
declare
    wrong  text;
    hint   text;
begin
    if definition is null then
        wrong := format('no event "%s" is declared: start a worker of the application that declares it once', type);
        hint := 'Declared events: select name from sereno.event_types';
    elsif payload is null or jsonb_typeof(payload) <> 'object' then
        wrong := format('event %s: the payload must be an object with named fields, not %s', type,
                        coalesce(left(payload::text, 60), 'null'));
        hint := 'For an event without fields, write ''{}''.';
    elsif octet_length(payload::text) > 65536 then
        wrong := format('event %s: %s bytes of payload, the limit is 65536', type, octet_length(payload::text));
        hint := 'Store it elsewhere, and send a reference.';
    elsif cardinality(named) = 0 then
        wrong := format('event %s: "to" is empty, so the event would reach no recipient', type);
        hint := 'Leave it out to notify everyone who wants it.';
    elsif cardinality(named) > 10000 then
        wrong := format('event %s: %s recipients by name, at most 10000', type, cardinality(named));
        hint := 'Leave "to" out, and let preferences say who wants it.';
    elsif array_position(named, null) is not null then
        wrong := format('event %s: a key in "to" is null', type);
        hint := 'Leave it out, or name a recipient.';
    elsif at not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then
        wrong := format('event %s: at is out of range: 1900 to 9999', type);
        hint := 'Leave it out for now.';
    elsif ttl < interval '0' or not isfinite(ttl) then
        wrong := format('event %s: ttl must be finite and not negative', type);
        hint := 'Leave it out to use the ttl that the code declares.';
    else
        perform sereno.check_text('to', name) from unnest(named) as name;
        return;
    end if;
    raise exception '%', wrong using errcode = 'invalid_parameter_value', hint = hint;
end $$;

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
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, declared);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant)) as given(name, value);
    if declared ? 'digest' then
        gathered := sereno.digest_key(type, declared -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, declared ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(declared -> 'channels')),
                (select array_agg(distinct name collate "C") from unnest("to") as named(name)),
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

-- Return whether a text is the exact name of a time zone. A function-local setting tests it: PostgreSQL spells the
-- name in its own case, and returns a POSIX rule, which is no name, in capitals.
create function sereno.is_zone(zone text) returns boolean
    language plpgsql stable strict set timezone = 'UTC' as $$
begin
    perform set_config('timezone', zone, true);
    return current_setting('timezone') = zone
       and (zone <> upper(zone) or zone !~ '[0-9]' or exists (select from pg_timezone_names where name = zone));
exception when invalid_parameter_value then
    return false;
end $$;

-- Create a recipient, or change what is given (null leaves a value as it is); return the id.
create function sereno.put_recipient(
    key text, tenant text default null, locale text default null, zone text default null, data jsonb default null
) returns bigint
    language plpgsql as $$
declare
    number bigint;
begin
    if key is null then
        raise exception 'a recipient needs a key' using errcode = 'invalid_parameter_value',
            hint = 'It is the name that your application uses for the recipient, such as user:7.';
    elsif not sereno.is_zone(zone) then
        raise exception 'there is no time zone "%"', left(zone, 60) using errcode = 'invalid_parameter_value',
            hint = 'It is a name such as Europe/Riga: select name from pg_timezone_names';
    elsif jsonb_typeof(data) <> 'object' then
        raise exception 'data of recipient % must be an object', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Such as {"name": "Ada"}; leave it out if there is none.';
    elsif octet_length(data::text) > 98304 then
        raise exception 'data of recipient % has % bytes', left(key, 60), octet_length(data::text)
            using errcode = 'invalid_parameter_value', hint = 'At most 96 KiB: store it elsewhere, and store a reference here.';
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

-- Return the id of a recipient, or raise an error if there is none.
create function sereno.recipient_id(key text, tenant text) returns bigint
    language plpgsql stable as $$
declare
    number bigint := (select id from sereno.recipients r
                      where r.tenant = coalesce(recipient_id.tenant, '') and r.key = recipient_id.key);
begin
    if number is null then
        raise exception 'there is no recipient "%"', left(key, 60) using errcode = 'invalid_parameter_value',
            hint = 'Create the recipient first: select sereno.put_recipient(…)';
    end if;
    return number;
end $$;

-- Add an address of a recipient; return its id. An invalid address that is written again becomes active, because it may
-- exist now; an unsubscribed one does not. Whether the channel can reach the address is not checked here.
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

-- Return a text as a regular expression that ignores case in any locale of the database: each letter with those that
-- Unicode 14 has for it in the other case, one to one. Ranges of letters as first, last, step, and the distance to
-- the other case; those of `two_way` apply in both directions.
create function sereno.in_any_case(wanted text) returns text
    language sql immutable as $$
    with two_way as materialized (
        select run[n] as first, run[n + 1] as last, run[n + 2] as step, run[n + 3] as shift
        from (values ('{
            65,90,1,32,192,214,1,32,216,222,1,32,255,255,1,121,256,302,2,1,306,310,2,1,313,327,2,1,330,374,2,1,377,381,2,1,
            384,384,1,195,385,385,1,210,386,388,2,1,390,390,1,206,391,391,1,1,393,394,1,205,395,395,1,1,398,398,1,79,399,399,1,202,
            400,400,1,203,401,401,1,1,403,403,1,205,404,404,1,207,405,405,1,97,406,406,1,211,407,407,1,209,408,408,1,1,
            410,410,1,163,412,412,1,211,413,413,1,213,414,414,1,130,415,415,1,214,416,420,2,1,422,422,1,218,423,423,1,1,
            425,425,1,218,428,428,1,1,430,430,1,218,431,431,1,1,433,434,1,217,435,437,2,1,439,439,1,219,440,440,1,1,444,444,1,1,
            447,447,1,56,452,452,1,2,455,455,1,2,458,458,1,2,461,475,2,1,478,494,2,1,497,497,1,2,500,500,1,1,504,542,2,1,
            546,562,2,1,570,570,1,10795,571,571,1,1,574,574,1,10792,575,576,1,10815,577,577,1,1,580,580,1,69,581,581,1,71,
            582,590,2,1,592,592,1,10783,593,593,1,10780,594,594,1,10782,604,604,1,42319,609,609,1,42315,613,613,1,42280,
            614,614,1,42308,618,618,1,42308,619,619,1,10743,620,620,1,42305,625,625,1,10749,637,637,1,10727,642,642,1,42307,
            647,647,1,42282,669,669,1,42261,670,670,1,42258,880,882,2,1,886,886,1,1,891,893,1,130,895,895,1,116,902,902,1,38,
            904,906,1,37,908,908,1,64,910,911,1,63,913,929,1,32,931,939,1,32,975,975,1,8,984,1006,2,1,1010,1010,1,7,1015,1015,1,1,
            1018,1018,1,1,1024,1039,1,80,1040,1071,1,32,1120,1152,2,1,1162,1214,2,1,1216,1216,1,15,1217,1229,2,1,1232,1326,2,1,
            1329,1366,1,48,4256,4293,1,7264,4295,4295,1,7264,4301,4301,1,7264,4304,4346,1,3008,4349,4351,1,3008,5024,5103,1,38864,
            5104,5109,1,8,7545,7545,1,35332,7549,7549,1,3814,7566,7566,1,35384,7680,7828,2,1,7840,7934,2,1,7936,7943,1,8,
            7952,7957,1,8,7968,7975,1,8,7984,7991,1,8,8000,8005,1,8,8017,8023,2,8,8032,8039,1,8,8048,8049,1,74,8050,8053,1,86,
            8054,8055,1,100,8056,8057,1,128,8058,8059,1,112,8060,8061,1,126,8112,8113,1,8,8144,8145,1,8,8160,8161,1,8,8165,8165,1,7,
            8498,8498,1,28,8544,8559,1,16,8579,8579,1,1,9398,9423,1,26,11264,11311,1,48,11360,11360,1,1,11367,11371,2,1,
            11378,11378,1,1,11381,11381,1,1,11392,11490,2,1,11499,11501,2,1,11506,11506,1,1,42560,42604,2,1,42624,42650,2,1,
            42786,42798,2,1,42802,42862,2,1,42873,42875,2,1,42878,42886,2,1,42891,42891,1,1,42896,42898,2,1,42900,42900,1,48,
            42902,42920,2,1,42931,42931,1,928,42932,42946,2,1,42951,42953,2,1,42960,42960,1,1,42966,42968,2,1,42997,42997,1,1,
            65313,65338,1,32,66560,66599,1,40,66736,66771,1,40,66928,66938,1,39,66940,66954,1,39,66956,66962,1,39,66964,66965,1,39,
            68736,68786,1,64,71840,71871,1,32,93760,93791,1,32,125184,125217,1,34}'::integer[])) as letters(run),
             generate_series(1, cardinality(run), 4) as n
    ),
    one_way as materialized (
        select run[n] as first, run[n + 1] as last, run[n + 2] as step, run[n + 3] as shift
        from (values ('{
            181,181,1,743,305,305,1,-232,383,383,1,-300,453,453,1,-1,453,453,1,1,456,456,1,-1,456,456,1,1,459,459,1,-1,459,459,1,1,
            498,498,1,-1,498,498,1,1,837,837,1,84,962,962,1,-31,976,976,1,-62,977,977,1,-57,981,981,1,-47,982,982,1,-54,
            1008,1008,1,-86,1009,1009,1,-80,1012,1012,1,-60,1013,1013,1,-96,7296,7296,1,-6254,7297,7297,1,-6253,7298,7298,1,-6244,
            7299,7300,1,-6242,7301,7301,1,-6243,7302,7302,1,-6236,7303,7303,1,-6181,7304,7304,1,35266,7835,7835,1,-59,
            7838,7838,1,-7615,8072,8079,1,-8,8088,8095,1,-8,8104,8111,1,-8,8124,8124,1,-9,8126,8126,1,-7205,8140,8140,1,-9,
            8188,8188,1,-9,8486,8486,1,-7517,8490,8490,1,-8383,8491,8491,1,-8262}'::integer[])) as letters(run),
             generate_series(1, cardinality(run), 4) as n
    ),
    letter as materialized (
        select ascii(given) as code, given, place from regexp_split_to_table(wanted, '') with ordinality as s(given, place)
    ),
    other as (
        select place, code + shift as code from letter
        join (select * from two_way union all select * from one_way) as run
          on code between first and last and (code - first) % step = 0
        union
        select place, code - shift from letter
        join two_way on code - shift between first and last and (code - shift - first) % step = 0
        union
        select place, code from letter
    ),
    class as (select place, count(*) as size, string_agg(chr(code), '' order by code) as cases from other group by place)
    select string_agg(case when size > 1 then '[' || cases || ']'
                           else regexp_replace(given, '[][(){}?*+|^$\\.&~# \t\n\r\v\f-]', '\\\&') end, '' order by place)
    from letter join class using (place)
    $$;

-- Raise an error about a filter, with a hint on how to write one.
create function sereno.refuse_filter(wrong text, variadic parts text[] default '{}') returns void
    language plpgsql immutable as $$
begin
    raise exception '%', format(wrong, variadic array(
            select left(part, 60) from unnest(parts) with ordinality as p(part, n) order by n))
        using errcode = 'invalid_parameter_value',
        hint = 'A filter is an object such as {"region": ["RM", "V"], "amount": {"min": 1000}}; {} says: always.';
end $$;

-- Return the tests of one field as a jsonpath: one element at its path passes all of them (&&), or one (||).
create function sereno.condition_field(key text, tests text[], joint text) returns text
    language plpgsql immutable as $$
declare
    parts  text[] := string_to_array(key, '.');
    path   text := (select '$' || string_agg('.' || to_json(part)::text, '' order by n)
                    from unnest(parts) with ordinality as p(part, n));
begin
    if '' = any(parts) or cardinality(parts) not between 1 and 10 then
        perform sereno.refuse_filter('"%s" names nothing in a payload: write "region" or "buyer.city", at most 10 names', key);
    elsif cardinality(tests) = 1 then
        return path || ' ' || tests[1];
    end if;
    -- A comparison would unwrap a list inside the list, and each test might match another element there.
    return format('exists(%s ? (@.type() != "array" && (@ %s)))', path, array_to_string(tests, ' ' || joint || ' @ '));
end $$;

-- Return one value as a jsonpath literal.
create function sereno.condition_value(key text, value jsonb) returns text
    language plpgsql immutable as $$
begin
    if jsonb_typeof(value) in ('array', 'object') then
        perform sereno.refuse_filter('"%s" is compared with a text, a number, true, false or null, not %s', key, value::text);
    elsif jsonb_typeof(value) = 'number' and length(value::text) > 300 and abs(value::numeric) >= 2::numeric ^ 1024 then
        perform sereno.refuse_filter('"%s": a number of at most 1024 bits can be compared', key);
    end if;
    return value::text;
end $$;

-- Return the tests of an object such as {"min": 1, "max": 5, "contains": "road", "exists": true} as jsonpath
-- predicates.
create function sereno.condition_tests(key text, tests jsonb) returns text[]
    language plpgsql immutable as $$
declare
    name   text;
    value  jsonb;
    low    jsonb := tests -> 'min';
    high   jsonb := tests -> 'max';
    found  text[] := '{}';
begin
    for name, value in select * from jsonb_each(tests) loop
        if name in ('min', 'max') and jsonb_typeof(value) in ('string', 'number') then
            found := found || (case name when 'min' then '>= ' else '<= ' end || sereno.condition_value(key, value));
        elsif name = 'contains' and jsonb_typeof(value) = 'string' and length(value #>> '{}') between 1 and 200 then
            found := found || ('like_regex ' || to_json(sereno.in_any_case(value #>> '{}'))::text);
        elsif name = 'exists' and value = 'true' then
            found := found || '!= null'::text;
        elsif name in ('min', 'max', 'contains', 'exists') then
            perform sereno.refuse_filter(
                '"%s": %s is %s, not %s', key, name, case name when 'contains' then 'a text of 1 to 200 characters'
                when 'exists' then 'true, or false without another test' else 'a number or a text' end, value::text);
        else
            perform sereno.refuse_filter('"%s": there is no test "%s": write min, max, contains or exists', key, name);
        end if;
    end loop;
    if jsonb_typeof(low) <> jsonb_typeof(high)
       or (case jsonb_typeof(low) when 'number' then low::numeric > high::numeric
                else (low #>> '{}') collate "C" > (high #>> '{}') collate "C" end) then
        perform sereno.refuse_filter('"%s": min and max are two numbers or two texts, min the smaller one', key);
    elsif found = '{}' then
        perform sereno.refuse_filter('"%s" has no test: write {"exists": true} or leave it out', key);
    end if;
    return found;
end $$;

-- Return an object of a filter, all of whose keys must match, as a jsonpath, with its number of clauses.
create function sereno.condition_object(wanted jsonb, depth integer, out path text, out clauses integer)
    language plpgsql immutable as $$
declare
    key    text;
    value  jsonb;
    part   text;
    inner_clauses integer;
begin
    clauses := 0;
    if jsonb_typeof(wanted) <> 'object' then
        perform sereno.refuse_filter('a filter is an object, not %s', wanted::text);
    elsif wanted = '{}' and depth > 1 then
        perform sereno.refuse_filter('an empty filter in "not" or "any" says nothing: fill it in, or leave it out');
    elsif depth > 5 then
        perform sereno.refuse_filter('the filter is nested more than 5 deep: write it with fewer not and any');
    end if;
    for key, value in select * from jsonb_each(wanted) loop
        inner_clauses := 1;
        if key = 'not' then
            select '!exists(true ? (' || o.path || '))', o.clauses + 1 into part, inner_clauses
            from sereno.condition_object(value, depth + 1) as o;
        elsif key = 'any' then
            if jsonb_typeof(value) <> 'array' or value = '[]' then
                perform sereno.refuse_filter('"any" needs a list of filters, at least one, not %s', value::text);
            end if;
            select string_agg('(' || o.path || ')', ' || ' order by n), sum(o.clauses) into part, inner_clauses
            from jsonb_array_elements(value) with ordinality as e(each, n), sereno.condition_object(each, depth + 1) as o;
        elsif value = '{"exists": false}' then
            part := '!exists(true ? (' || sereno.condition_field(key, '{!= null}', '&&') || '))';
            inner_clauses := 2;
        elsif jsonb_typeof(value) = 'object' then
            part := sereno.condition_field(key, sereno.condition_tests(key, value), '&&');
        elsif value = '[]' then
            perform sereno.refuse_filter('"%s" is one of nothing: name at least one value, or leave it out', key);
        else
            part := sereno.condition_field(
                key, (select array_agg('== ' || sereno.condition_value(key, each) order by n)
                      from jsonb_array_elements(case jsonb_typeof(value) when 'array' then value else jsonb_build_array(value) end)
                           with ordinality as e(each, n)), '||');
        end if;
        path := concat_ws(' && ', path, '(' || part || ')');
        clauses := clauses + inner_clauses;
    end loop;
end $$;

-- Return a filter as the jsonpath that the Python client compiles: true or false for every payload.
create function sereno.condition(filter jsonb) returns jsonpath
    language plpgsql immutable as $$
declare
    found record;
begin
    if filter is null then
        return null;
    end if;
    select * into found from sereno.condition_object(filter, 1);
    if found.clauses > 100 then
        perform sereno.refuse_filter('the filter has %s clauses, at most 100 are possible', found.clauses::text);
    elsif octet_length(found.path) + 17 > 8192 then
        perform sereno.refuse_filter('the filter takes %s bytes as a jsonpath, at most 8192 are possible',
                                     (octet_length(found.path) + 17)::text);
    end if;
    return case when filter = '{}' then 'true' else 'exists(true ? (' || found.path || '))' end::jsonpath;
end $$;

-- Return quiet hours in their stored form, or raise an error. Input: {"start": "22:00", "end": "08:00", "days":
-- ["friday", "saturday"]}, or a list.
create function sereno.quiet_spans(quiet jsonb) returns jsonb
    language plpgsql immutable as $$
declare
    week   text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}';
    spans  jsonb := case when jsonb_typeof(quiet) = 'array' then quiet else jsonb_build_array(quiet) end;
    span   jsonb;
    times  text[];
    days   integer[];
    wrong  text;
    result jsonb := '[]';
    busy   int4multirange := '{}';
begin
    if quiet is null then
        return null;
    elsif jsonb_array_length(spans) > 50 then
        wrong := format('there are %s spans of quiet hours, at most 50 are possible', jsonb_array_length(spans));
    end if;
    for span in select jsonb_array_elements(spans) loop
        exit when wrong is not null;
        if jsonb_typeof(span) <> 'object' or (span - array['start', 'end', 'days']) <> '{}' then
            wrong := format('quiet hours have start, end and, if you like, days, not %s', left(span::text, 60));
            exit;
        end if;
        times := array[btrim(span ->> 'start'), btrim(span ->> 'end')];
        if (select count(*) from unnest(times) as t where t ~ '^([01]?[0-9]|2[0-3]):[0-5][0-9]$') < 2 then
            wrong := format('start and end of quiet hours are times of day such as "22:00", not %s', left(span::text, 60));
            exit;
        end if;
        times := array[lpad(times[1], 5, '0'), lpad(times[2], 5, '0')];
        days := (
            select array_agg(distinct coalesce(number, 0)::integer)
            from jsonb_array_elements_text(
                case when jsonb_typeof(span -> 'days') = 'array' then span -> 'days' else '[]' end) as day
            left join unnest(week) with ordinality as w(full_name, number)
              on lower(btrim(day)) in (full_name, left(full_name, 3), number::text));
        if times[1] = times[2] then
            wrong := format('quiet hours from %s to %s have no length: for a whole day write two spans', times[1], times[2]);
        elsif coalesce(jsonb_typeof(span -> 'days'), 'null') <> 'null' and (days is null or 0 = any(days)) then
            wrong := format('days are a list such as ["saturday", "sunday"] or left out, not %s', left((span -> 'days')::text, 60));
        end if;
        result := result || jsonb_build_object('start', times[1], 'end', times[2], 'days', days);
        -- In minutes of the week; a span that passes its end continues at its start.
        busy := busy + (
            select range_agg(int4range(first, last))
            from unnest(coalesce(days, '{1,2,3,4,5,6,7}')) as day,
                 (values (0), (-10080)) as turn(shift),
                 lateral (select (day - 1) * 1440 + shift + extract(epoch from times[1]::time)::integer / 60 as first) as f,
                 lateral (select (day - 1) * 1440 + shift + extract(epoch from times[2]::time)::integer / 60
                                 + case when times[2] <= times[1] then 1440 else 0 end as last) as l);
    end loop;
    if wrong is null and busy @> int4range(0, 10080) then
        wrong := 'these quiet hours cover the whole week and never end';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'invalid_parameter_value',
            hint = 'Write {"start": "22:00", "end": "08:00"}; for nothing at all, wanted => false.';
    end if;
    return result;
end $$;

-- Set preferences of a recipient, or, without a recipient, the defaults of a tenant; return the id. What is given
-- changes, for exactly this category, event and channel; what is left out stays; what `clear` names is reset. A row
-- without any preference is deleted.
--   select sereno.put_preference('user:7', category => 'tenders', filter => '{"amount": {"min": 1000}}');
create function sereno.put_preference(
    recipient text, tenant text default null, category text default null, event text default null, channel text default null,
    wanted boolean default null, filter jsonb default null, quiet jsonb default null, clear text[] default '{}'
) returns bigint
    language plpgsql as $$
declare
    given   text[] := array_remove(array[case when wanted is not null then 'wanted' end,
                                         case when filter is not null then 'filter' end,
                                         case when quiet is not null then 'quiet' end], null);
    number  bigint;
begin
    perform sereno.check_text(checked.name, checked.value)
    from (values ('recipient', recipient), ('tenant', tenant), ('category', category), ('event', event), ('channel', channel))
         as checked(name, value);
    clear := coalesce(clear, '{}');
    if not clear <@ array['wanted', 'filter', 'quiet'] or clear && given then
        raise exception 'clear names preferences to reset that are not also given: wanted, filter, quiet; not %', clear
            using errcode = 'invalid_parameter_value', hint = 'Such as clear => array[''quiet''].';
    end if;
    insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted, filter, condition, quiet)
    values (coalesce(put_preference.tenant, ''), case when recipient is not null then sereno.recipient_id(recipient, tenant) end,
            put_preference.category, put_preference.event, put_preference.channel, put_preference.wanted, put_preference.filter,
            sereno.condition(put_preference.filter), sereno.quiet_spans(put_preference.quiet))
    on conflict on constraint preferences_once do update
    set wanted = case when 'wanted' <> all(clear) then coalesce(excluded.wanted, p.wanted) end,
        filter = case when 'filter' <> all(clear) then coalesce(excluded.filter, p.filter) end,
        condition = case when 'filter' <> all(clear) then coalesce(excluded.condition, p.condition) end,
        quiet = case when 'quiet' <> all(clear) then coalesce(excluded.quiet, p.quiet) end,
        changed_at = sereno.now()
    returning id into number;
    delete from sereno.preferences as p
    where p.id = number and p.wanted is null and p.filter is null and p.quiet is null;
    return case when not found then number end;
end $$;

-- Deliveries that entered a state, by hour. `matched` counts all deliveries that were made, `pending` those that
-- nothing prevented, `tried` those given to a provider, once each; `retried` and `held` wait for another attempt, or
-- for the end of quiet hours. `reason`: from a small fixed set. Processes add up their changes and write them a few
-- times a minute, so that no page counts deliveries.
create table sereno.delivery_hours (
    hour     timestamptz not null,
    event    text not null,
    channel  text not null,
    state    text not null,
    reason   text not null default '',
    count    integer not null,
    primary key (hour, event, channel, state, reason)
) with (fillfactor = 70);

-- The same by tenant, without the event type and the reason: one row for each tenant with deliveries, hour and
-- channel.
create table sereno.delivery_tenant_hours (
    tenant     text not null,
    hour       timestamptz not null,
    channel    text not null,
    matched    integer not null default 0,
    eligible   integer not null default 0,
    skipped    integer not null default 0,
    sent       integer not null default 0,
    accepted   integer not null default 0,
    delivered  integer not null default 0,
    read       integer not null default 0,
    failed     integer not null default 0,
    primary key (tenant, hour, channel)
) with (fillfactor = 70);

-- For the deletion of old rows, which lie in the order in which they were written.
create index delivery_tenant_hours_old on sereno.delivery_tenant_hours using brin (hour);

-- Outcomes of a provider by minute: messages given to it, its responses, and a histogram of the time until receipts
-- (the buckets of sereno.telemetry.metrics, and one beyond). `account`: the tenant whose credentials are used; empty
-- for the application's own.
create table sereno.channel_minutes (
    minute     timestamptz not null,
    channel    text not null,
    account    text not null,
    sent       integer not null default 0,
    accepted   integer not null default 0,
    throttled  integer not null default 0,
    failed     integer not null default 0,
    unknown    integer not null default 0,
    receipts   integer[] not null,
    primary key (minute, channel, account)
) with (fillfactor = 70);

-- Error codes of a provider by minute; a worker distinguishes only a few at a time.
create table sereno.channel_codes (
    minute   timestamptz not null,
    channel  text not null,
    account  text not null,
    code     text not null,
    count    integer not null,
    primary key (minute, channel, account, code)
) with (fillfactor = 70);

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.notify is
    'Write an event in the current transaction, and return its id. A second call with the same type, tenant, '
    'subject and key returns the id of the first. "to": keys of recipients; without it, everyone who wants the '
    'event. at: not sent before then. ttl: not sent after that.';
comment on function sereno.put_recipient is
    'Create a recipient, or change the given fields, and return its id. Omitted parameters leave values '
    'unchanged.';
comment on function sereno.put_address is
    'Add an address of a recipient, or change it, and return its id. state: active, unverified, invalid or '
    'unsubscribed.';
comment on function sereno.put_preference is
    'Write a preference, and return its id; without a recipient, the default of the tenant. clear: the fields to '
    'clear, of wanted, filter and quiet. Returns null when the preference is empty.';
