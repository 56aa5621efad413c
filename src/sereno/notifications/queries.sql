-- Read queries for events, deliveries, recipients and channels. Each reads at most a window of rows: no screen reads a
-- million rows. Secrets (keys of addresses, settings of accounts) are never selected.

-- name: clock
-- The clock of the database, for relative times such as "in 5 minutes".
select sereno.now();

-- name: events
-- Newest first. By ids, subject or trace with their own index, else among the newest. Only one of the four branches is
-- read.
select row_to_json(page)::text
from (select id, type, nullif(tenant, '') as tenant, subject, key, category, channels, cardinality(audience) as named, topic,
             critical, opt_in, due_at, expires_at, created_at, matched_at, walked, note, rate, cancelled_at
      from ((select * from sereno.events
             where %(along)s::text = 'newest' and (%(before)s::bigint is null or id < %(before)s)
             order by id desc limit %(window)s)
            union all
            (select * from sereno.events
             where %(along)s::text = 'id' and id = any(%(ids)s::bigint[]) and (%(before)s::bigint is null or id < %(before)s))
            union all
            (select * from sereno.events
             where %(along)s::text = 'subject' and subject = %(subject)s::text
               and (%(before)s::bigint is null or id < %(before)s)
             order by id desc limit %(window)s)
            union all
            (select * from sereno.events
             where %(along)s::text = 'trace' and trace is not null and hashtext(sereno.trace_id(trace)) = hashtext(%(trace)s::text)
               and sereno.trace_id(trace) = %(trace)s::text and (%(before)s::bigint is null or id < %(before)s)
             order by id desc limit %(window)s)) as newest
      where (%(type)s::text is null or type = %(type)s) and (%(tenant)s::text is null or tenant = %(tenant)s)
        and (%(since)s::timestamptz is null or created_at >= %(since)s)
-- use: search.terms_begin
               when 'type' then type like any(patterns)
               when 'subject' then subject like any(patterns)
               when 'key' then key like any(patterns)
               when 'category' then category like any(patterns)
               when 'channel' then exists (select from unnest(channels) as has where has like any(patterns))
               when 'tenant' then nullif(tenant, '') like any(patterns)
               when 'trace' then sereno.trace_id(trace) like any(patterns)
               when 'note' then note ilike any(patterns)
               when 'id' then id::text like any(patterns)
               when 'matched' then case when matched_at is null then 'no' else 'yes' end like any(patterns)
               when 'critical' then case when critical then 'yes' else 'no' end like any(patterns)
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'age' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'due' then date_part('epoch', due_at) >= low and date_part('epoch', due_at) < high
               when 'payload' then exists (select from jsonb_array_elements(pieces) as piece where payload @> piece)
               else type ilike any(patterns) or subject ilike any(patterns) or key ilike any(patterns)
                    or category ilike any(patterns) or tenant ilike any(patterns) or sereno.trace_id(trace) ilike any(patterns)
-- use: search.terms_end
      order by id desc limit %(limit)s) as page
order by id desc;

-- name: event
-- One event with its payload, and the first recipients that it names.
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, key, category, channels, cardinality(audience) as named, topic,
             critical, opt_in, due_at, expires_at, created_at, matched_at, walked, note, rate, cancelled_at, sereno.shown(payload) as payload, audience[1:%(most)s] as audience
      from sereno.events where id = %(event)s) as found;

-- name: types
-- Types of recent events, newest first.
select type from (select id, type from sereno.events order by id desc limit %(window)s) as newest
group by type order by max(id) desc limit %(most)s;

-- name: events_for
-- The newest events of a type for one recipient: those that name the recipient, those of its topics, and broadcasts.
-- Without one: all.
with who as materialized (
    select id from sereno.recipients where tenant = %(tenant)s and key = %(recipient)s::text
)
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, key, category, channels, cardinality(audience) as named, topic,
             critical, opt_in, due_at, expires_at, created_at, matched_at, walked, note, rate, cancelled_at, sereno.shown(payload) as payload
      from (select * from sereno.events order by id desc limit %(window)s) as newest
      where type = %(type)s and tenant = %(tenant)s
        and (%(recipient)s::text is null or %(recipient)s = any(audience)
             or audience is null and (topic is null or exists (
                 select from sereno.subscriptions s
                 where s.tenant = %(tenant)s and s.topic = newest.topic and s.recipient_id = (select id from who))
                 or exists (select from sereno.deliveries d where d.event_id = newest.id and d.recipient_id = (select id from who))))
      order by id desc limit %(most)s) as found
order by id desc;

-- name: event_tally
-- Deliveries of an event by channel, state and reason, counted up to a bound.
select channel, state, reason, count(*)
from (select channel, state, reason from sereno.deliveries where event_id = %(event)s limit %(bound)s + 1) as counted
group by channel, state, reason
order by count(*) desc, channel, state, reason limit %(most)s;

-- name: event_variants
-- Deliveries of an event by variant of its message, counted up to a bound.
select row_to_json(line)::text
from (select variant, count(*) as deliveries,
             count(*) filter (where state in ('sent', 'delivered', 'read', 'bounced')) as sent,
             count(*) filter (where state in ('delivered', 'read')) as delivered,
             count(*) filter (where state = 'read') as read,
             count(*) filter (where state = any(sereno.failed_states())) as failed
      from (select sereno.variant_of(e.variants, d.recipient_id) as variant, d.state
            from sereno.events e join sereno.deliveries d on d.event_id = e.id
            where e.id = %(event)s and e.variants is not null limit %(bound)s) as counted
      group by variant) as line
order by variant;

-- name: delivery
-- One, with its event, recipient and address.
select row_to_json(found)::text
from (select d.id, d.state, e.type as event, d.event_id, r.key as recipient, d.channel, nullif(d.tenant, '') as tenant,
             d.attempts, d.due_at, d.sent_at, d.created_at, d.changed_at, d.reason, d.error_code, d.error_message,
             d.recipient_id, d.address_id, nullif(d.account, '') as account, d.expires_at, d.unknowns, d.job_id, d.provider_id,
             d.receipt_at, a.address, a.state as address_state, a.reason as address_reason, e.subject, e.key as event_key,
             sereno.shown(e.payload) as payload
      from sereno.deliveries d
      left join sereno.events e on e.id = d.event_id
      left join sereno.recipients r on r.id = d.recipient_id
      left join sereno.addresses a on a.id = d.address_id
      where d.id = %(delivery)s) as found;

-- name: receipts
-- Receipts of one delivery, among the newest receipts.
select row_to_json(found)::text
from (select id, receipt_id, outcome, code, at
      from (select * from sereno.receipts order by id desc limit %(window)s) as newest
      where delivery_id = %(delivery)s
      order by id desc limit %(most)s) as found
order by id desc;

-- name: deliveries_for
-- Deliveries of some events for one recipient.
select row_to_json(line)::text
from (select d.id, d.state, d.event_id, d.channel, d.attempts, d.due_at, d.sent_at, d.created_at, d.changed_at, d.reason,
             d.error_code, d.error_message, d.expires_at, d.job_id, d.receipt_at, d.account, a.address,
             d.digest is not null as is_collected,
             case when d.state = 'pending' then
                 (select b.queue from sereno.batches b
                  where b.purpose = 'send' and b.channel = d.channel and b.account = d.account and b.job_id is null
                    and b.due_at = d.due_at and d.id = any(b.deliveries) limit 1) end as queue
      from sereno.deliveries d left join sereno.addresses a on a.id = d.address_id
      where d.event_id = any(%(events)s::bigint[]) and d.recipient_id = %(recipient)s
      order by d.event_id desc, d.channel, d.id limit %(most)s) as line;

-- name: recipients
-- Newest first, among the newest recipients, with the channels of their active addresses. Within a tenant, exact keys
-- use the index.
select row_to_json(line)::text
from (select page.id, page.key, nullif(page.tenant, '') as tenant, page.locale, page.zone, page.created_at, page.changed_at,
             array(select channel from (select channel from sereno.addresses
                                        where recipient_id = page.id and state = 'active' limit %(addresses)s) as ways
                   group by channel order by channel) as channels
      from (select * from (
                (select * from sereno.recipients
                 where %(tenant)s::text is null and (%(before)s::bigint is null or id < %(before)s)
                 order by id desc limit %(window)s)
                union all
                (select * from sereno.recipients
                 where tenant = %(tenant)s and %(keys)s::text[] is null and (%(before)s::bigint is null or id < %(before)s)
                 order by id desc limit %(window)s)
                union all
                (select * from sereno.recipients
                 where tenant = %(tenant)s and key = any(%(keys)s::text[]) and (%(before)s::bigint is null or id < %(before)s))
            ) as newest
            where (%(pattern)s::text is null or key like %(pattern)s)
-- use: search.terms_begin
               when 'key' then key like any(patterns)
               when 'tenant' then nullif(tenant, '') like any(patterns)
               when 'locale' then locale like any(patterns)
               when 'zone' then zone like any(patterns)
               when 'channel' then exists (select from sereno.addresses way where way.recipient_id = newest.id
                                           and way.state = 'active' and way.channel like any(patterns))
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'changed' then date_part('epoch', changed_at) >= low and date_part('epoch', changed_at) < high
               when 'data' then exists (select from jsonb_array_elements(pieces) as piece where data @> piece)
               else key ilike any(patterns) or tenant ilike any(patterns)
-- use: search.terms_end
            order by id desc limit %(limit)s) as page) as line
order by id desc;

-- name: recipient
-- One recipient, by the key of the application.
select row_to_json(found)::text
from (select id, key, nullif(tenant, '') as tenant, locale, zone, sereno.shown(data) as data, created_at, changed_at
      from sereno.recipients where tenant = %(tenant)s and key = %(key)s) as found;

-- name: addresses
-- Addresses of a recipient, without their secret keys.
select row_to_json(found)::text
from (select id, channel, address, keys is not null as has_keys, state, reason, created_at, changed_at
      from sereno.addresses where recipient_id = %(recipient)s
      order by channel, id limit %(most)s) as found
order by channel, id;

-- name: preferences
-- Preferences of a recipient and the defaults of the tenant, the highest priority first.
select row_to_json(found)::text
from (select id, nullif(tenant, '') as tenant, recipient_id is not null as is_own, category, event, channel, wanted,
             sereno.shown(filter) as condition, quiet, digest_seconds as digest, changed_at, weight
      from ((select * from sereno.preferences where recipient_id = %(recipient)s limit %(most)s)
            union all
            (select * from sereno.preferences where recipient_id is null and tenant = %(tenant)s limit %(most)s)) as p) as found
order by weight desc, id;

-- name: pauses
-- Paused channels.
select row_to_json(found)::text
from (select channel, account, reason, since from sereno.channel_pauses order by channel, account limit %(most)s) as found
order by channel, account;

-- name: channels
-- Channels that the code declares, that have pending deliveries or addresses, or that were used recently. The names are
-- found with index skip scans; outcomes are counted among the newest deliveries.
with recursive waiting(channel) as (
    (select channel from sereno.batches where purpose = 'send' and job_id is null order by channel limit 1)
    union all
    select (select b.channel from sereno.batches b where b.purpose = 'send' and b.job_id is null and b.channel > waiting.channel
            order by b.channel limit 1)
    from waiting where waiting.channel is not null
),
addressed(channel) as (
    (select channel from sereno.addresses order by channel limit 1)
    union all
    select (select a.channel from sereno.addresses a where a.channel > addressed.channel order by a.channel limit 1)
    from addressed where addressed.channel is not null
),
recent as materialized (
    select channel, count(*) filter (where state in ('sent', 'delivered', 'read')) as sent,
           count(*) filter (where state in ('failed', 'invalid', 'bounced', 'dead')) as failed,
           count(*) filter (where state = 'unknown') as unknown
    from (select channel, state from sereno.deliveries order by id desc limit %(window)s) as newest
    group by channel
),
named as (
    select unnest(%(known)s::text[]) as channel
    union (select channel from waiting limit %(most)s)
    union (select channel from addressed limit %(most)s)
    union (select channel from recent)
    union (select channel from sereno.channel_pauses limit %(most)s)
)
select row_to_json(line)::text
from (select named.channel, named.channel = any(%(known)s::text[]) as is_known, pending.count as pending,
             coalesce(recent.sent, 0) as sent, coalesce(recent.failed, 0) as failed, coalesce(recent.unknown, 0) as unknown
      from named
      cross join lateral (
          select least(coalesce(sum(cardinality(deliveries)), 0), %(bound)s + 1)::bigint as count
          from (select deliveries from sereno.batches b
                where b.purpose = 'send' and b.job_id is null and b.channel = named.channel limit %(bound)s + 1) as held
      ) as pending
      left join recent on recent.channel = named.channel
      where named.channel is not null
      order by named.channel limit %(most)s) as line
order by channel;
