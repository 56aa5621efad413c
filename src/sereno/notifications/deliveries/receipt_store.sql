-- Receipts: requested in batches or sent by providers, each counted once.
-- Lock order in every transaction: batches by id, deliveries by id, names of receipts, addresses by id.

-- name: stop_expired
-- Stops requesting receipts whose time is over, with or without a reply. A batch that another job has locked is left to
-- that job, or to the next call. Only the batches that are requested next are examined: many may be due.
with clock as materialized (select sereno.now() as now),
due as materialized (
    select id, ends_at from sereno.batches
    where purpose = 'ask' and channel = %(channel)s and account = %(account)s and queue = %(queue)s and job_id is null
      and due_at <= sereno.now()
    order by due_at, id limit %(most)s
),
over as materialized (
    select id from sereno.batches
    where id = any(array(select id from due where ends_at <= (select now from clock))) and job_id is null
    order by id for update skip locked
),
ended as (
    delete from sereno.batches where id = any(array(select id from over)) returning deliveries
),
locked as materialized (
    select id from sereno.deliveries
    where id = any(array(select unnest(ended.deliveries) from ended)) and receipt_at is not null
    order by id for update
)
update sereno.deliveries set receipt_at = null where id = any(array(select id from locked));

-- name: provider_ids
-- Provider ids of the deliveries that have no receipt yet.
select coalesce(json_agg(json_build_array(id, provider_id)), '[]')::text from sereno.deliveries
where id = any(%(ids)s::text::bigint[]) and state in ('sent', 'unknown') and provider_id is not null and receipt_at is not null;

-- name: hold_batches
-- Locks the requested batches, before their deliveries. A statement of its own: the role of the server, which accepts the
-- receipts that a provider sends, may not change batches.
select count(*) from (select id from sereno.batches where id = any(%(batches)s::text::bigint[]) order by id for update) as held;

-- name: request_again
-- Removes deliveries with a receipt from their batches; the others are requested again until their time is over.
with left_over as materialized (
    select batch, array(select jsonb_array_elements_text(ids)::bigint) as ids
    from jsonb_to_recordset(%(left_over)s::text::jsonb) as s(batch bigint, ids jsonb)
),
shorter as (
    update sereno.batches set deliveries = ids
    from left_over
    where batches.id = batch and cardinality(ids) > 0 and ends_at > batches.due_at
),
ended as (
    delete from sereno.batches
    using left_over
    where batches.id = batch and (cardinality(ids) = 0 or ends_at <= batches.due_at)
    returning ids
)
update sereno.deliveries set receipt_at = null
where id = any(array(select unnest(ids) from ended)) and receipt_at is not null;

-- name: apply_receipts
-- Applies receipts, each once; a state only moves forward. A complaint and an unsubscription end their address in any
-- state of the delivery. Returns the changes and the due times of retries. Receipts that were requested: all deliveries
-- of their batches, `ids`, are locked too, because `request_again` changes them.
with clock as materialized (select sereno.now() as now),
reported as materialized (
    select distinct on (provider_id collate "C", delivery_id, outcome, receipt_id) *
    from jsonb_to_recordset(%(receipts)s::text::jsonb) as s(
        delivery_id bigint, provider_id text, outcome text, code text, message text, receipt_id text)
),
known as materialized (
    select reported.*, coalesce(reported.delivery_id, m.delivery_id) as id
    from reported left join sereno.message_ids m
      on reported.delivery_id is null and m.channel = %(channel)s and m.account = %(account)s and m.provider_id = reported.provider_id
),
-- A receipt for an unknown message: the provider id may not be stored yet.
early as (
    insert into sereno.early_receipts (channel, account, provider_id, receipt)
    select %(channel)s, %(account)s, provider_id,
           jsonb_build_object('outcome', outcome, 'code', code, 'message', message, 'id', receipt_id)
    from known where id is null and not %(drop_unknown)s
),
wanted as materialized (
    select id from known where id is not null union all select unnest(%(ids)s::text::bigint[])
),
-- use: notifications.locked_deliveries
new as materialized (
    insert into sereno.receipts (channel, receipt_id, delivery_id, outcome, code)
    select distinct on (receipt_id, id) %(channel)s, receipt_id, id, outcome, code from known
    where receipt_id is not null and id is not null and (select count(*) from locked) >= 0
    order by receipt_id, id
    on conflict do nothing
    returning receipt_id, delivery_id
),
fresh as materialized (
    select d.id, d.state as before, d.address_id, known.outcome, known.code, known.message
    from known join locked d on d.id = known.id
    where d.channel = %(channel)s and d.account = %(account)s and d.provider_id = known.provider_id
      and (known.receipt_id is null or (known.receipt_id, known.id) in (select receipt_id, delivery_id from new))
),
-- One of several reports about a delivery decides its state. Who clicked has read the message; who complained or
-- unsubscribed has received it, unless a report says otherwise: providers refuse addresses for earlier complaints. An
-- address can be refused after its server accepted the message.
open as materialized (
    select distinct on (id) id, before, outcome, code, message,
           case when outcome = 'clicked' then 'read' when outcome in ('complained', 'unsubscribed') then 'delivered'
                when outcome = 'invalid' and before = 'delivered' then 'bounced' else outcome end as becomes
    from fresh
    where case before when 'sent' then true when 'unknown' then true
                      when 'delivered' then outcome in ('read', 'clicked', 'bounced', 'invalid') else false end
    order by id, array_position(array['down', 'retry', 'unsubscribed', 'complained', 'delivered', 'failed', 'bounced',
                                      'invalid', 'read', 'clicked'], outcome) desc
),
moved as (
    update sereno.deliveries
    set state = case when open.outcome = 'down' then 'pending'
                     when open.outcome = 'retry' and attempts > cardinality(%(delays)s::double precision[]) then 'dead'
                     when open.outcome = 'retry' then 'pending' else open.becomes end,
        reason = case when open.outcome = 'down' then 'the channel is paused'
                      when open.outcome = 'retry' and attempts > cardinality(%(delays)s::double precision[])
                          then attempts || ' tries, none of them arrived'
                      when open.outcome = 'retry' then 'tried again' end,
        attempts = attempts - case when open.outcome = 'down' then 1 else 0 end,
        error_code = nullif(open.code, ''), error_message = nullif(open.message, ''),
        due_at = case when open.outcome = 'retry' and attempts <= cardinality(%(delays)s::double precision[])
                      then (select now from clock) + make_interval(secs => (%(delays)s::double precision[])[greatest(1, attempts)])
                      else due_at end,
        receipt_at = null, changed_at = (select now from clock)
    from open
    where deliveries.id = open.id
    returning deliveries.id, deliveries.state, deliveries.due_at, recipient_id, digest, address_id, open.outcome, open.code, open.message,
              event_id, deliveries.tenant, sent_at, open.before
),
-- Deliveries collected into a message that did not arrive get its state.
unsent_parts as (
    update sereno.deliveries
    set state = moved.state,
        reason = 'as delivery ' || moved.id || ', whose message included it', changed_at = (select now from clock)
    from moved
    where moved.digest is not null and moved.state in ('failed', 'invalid', 'dead', 'bounced')
      and deliveries.recipient_id = moved.recipient_id and deliveries.digest = moved.digest and deliveries.digest_of = moved.id
      and deliveries.state = 'skipped'
),
again as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, gathers, deliveries)
    select 'send', %(channel)s, %(account)s, queue, due_at, bool_or(digest is not null), array_agg(id order by id)
    -- In the queue of the service that declares the event: a receipt may have been received by another one.
    from (select moved.*, coalesce((select declared.definition ->> 'queue'
                                    from sereno.events e join sereno.event_types declared on declared.name = e.type
                                    where e.id = moved.event_id), 'notifications') as queue
          from moved where state = 'pending') as waiting
    group by queue, due_at
    returning queue, due_at
),
-- `unsubscribed` lasts, whereas an invalid address that is given again is used again.
ending as materialized (
    select distinct on (address_id) address_id, outcome, code, message
    from (select address_id, outcome, code, message from moved where outcome = 'invalid'
          union all
          select address_id, outcome, code, message from fresh where outcome in ('complained', 'unsubscribed')) as reports
    order by address_id, array_position(array['complained', 'unsubscribed', 'invalid'], outcome)
),
bad as materialized (
    select a.id, ending.outcome, ending.code, ending.message
    from ending join sereno.addresses a on a.id = ending.address_id
    where a.state = 'active' or (ending.outcome <> 'invalid' and a.state <> 'unsubscribed')
    order by a.id for update of a
),
addresses_ended as (
    update sereno.addresses
    set state = case bad.outcome when 'invalid' then 'invalid' else 'unsubscribed' end,
        reason = case bad.outcome when 'complained' then 'reported as spam' when 'unsubscribed' then 'at the provider'
                                  else coalesce(nullif(bad.code, ''), 'refused') end
                 || coalesce(': ' || nullif(bad.message, ''), ''),
        changed_at = (select now from clock)
    from bad
    where addresses.id = bad.id
)
select (select count(*) from moved),
       coalesce((select json_agg(json_build_array(queue, greatest(0, extract(epoch from due_at - (select now from clock))::float))) from again), '[]')::text,
       coalesce((select json_agg(json_build_array(e.type, counted.tenant, counted.outcome, counted.before, counted.state, counted.code, counted.bucket, counted.count))
                 from (select event_id, tenant, outcome, before, state, code, width_bucket(
                                  extract(epoch from (select now from clock) - sent_at)::double precision,
                                  %(edges)s::double precision[]) as bucket, count(*) as count
                       from moved group by 1, 2, 3, 4, 5, 6, 7) as counted
                 left join sereno.events e on e.id = counted.event_id), '[]')::text;

-- name: apply_delivered
-- `apply_receipts` for requested receipts that all say `delivered`: the usual case, without what the others need.
-- Deliveries that were collected into these messages do not change, so they are not locked.
with clock as materialized (select sereno.now() as now),
locked as materialized (
    select id, state, provider_id from sereno.deliveries where id = any(%(ids)s::text::bigint[]) order by id for update
),
fresh as materialized (
    select locked.id, locked.state as before
    from jsonb_to_recordset(%(receipts)s::text::jsonb) as s(delivery_id bigint, provider_id text)
    join locked on locked.id = s.delivery_id and locked.provider_id = s.provider_id
    where locked.state in ('sent', 'unknown')
),
moved as (
    update sereno.deliveries
    set state = 'delivered', reason = null, error_code = null, error_message = null, receipt_at = null, changed_at = (select now from clock)
    from fresh
    where deliveries.id = fresh.id
    returning event_id, tenant, sent_at, fresh.before
)
select (select count(*) from moved), '[]',
       coalesce((select json_agg(json_build_array(e.type, counted.tenant, 'delivered', counted.before, 'delivered', null, counted.bucket, counted.count))
                 from (select event_id, tenant, before, width_bucket(
                                  extract(epoch from (select now from clock) - sent_at)::double precision,
                                  %(edges)s::double precision[]) as bucket, count(*) as count
                       from moved group by 1, 2, 3, 4) as counted
                 left join sereno.events e on e.id = counted.event_id), '[]')::text;

-- name: early_receipts
-- Early receipts of one channel and account whose messages are stored by now; one call locks the deliveries once. Also
-- deletes receipts for messages that never became known.
with waiting as materialized (
    select e.id, e.channel, e.account, is_known
    from sereno.early_receipts e cross join lateral (
        select exists (select from sereno.message_ids m
                       where m.channel = e.channel and m.account = e.account and m.provider_id = e.provider_id)) as k(is_known)
    where is_known or e.at < sereno.now() - interval '10 minutes'
    order by e.id limit 1000 for update of e skip locked
),
first as materialized (select channel, account from waiting where is_known order by id limit 1),
gone as (
    delete from sereno.early_receipts e
    where e.id = any(array(select id from waiting where not is_known
                           union all
                           select id from waiting where is_known and (channel, account) = (select channel, account from first)))
    returning e.*
)
select coalesce(json_agg(json_build_array(channel, account, provider_id, receipt) order by id), '[]')::text
from gone where id = any(array(select id from waiting where is_known));

-- name: unrequested
-- Channels and accounts with due receipts of a queue that have no job.
with recursive place(channel, account) as (
    (select channel, account from sereno.batches where purpose = 'ask' and job_id is null order by channel, account limit 1)
    union all
    select next.channel, next.account
    from place cross join lateral (
        select b.channel, b.account from sereno.batches b
        where b.purpose = 'ask' and b.job_id is null and (b.channel, b.account) > (place.channel, place.account)
        order by b.channel, b.account limit 1) as next
)
select channel, account from place
where exists (select from sereno.batches b
              where b.purpose = 'ask' and b.job_id is null and b.channel = place.channel and b.account = place.account
                and b.queue = %(queue)s and b.due_at < sereno.now() - interval '5 minutes');
