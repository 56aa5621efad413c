-- Outcomes of deliveries that were sent or stored in an inbox.
-- Lock order in every transaction: batches by id, deliveries by id, addresses by id.

-- name: record
-- Records the outcomes of claimed deliveries. The batches are the right to do so: a job that settled them for a sender
-- that seemed dead has deleted them. A worker that was only slow may still record an outcome that is unknown otherwise.
with clock as materialized (select sereno.now() as now),
owned as materialized (
    select id, queue, deliveries from sereno.batches where id = any(%(batches)s::text::bigint[]) order by id for update
),
wanted as materialized (
    select * from jsonb_to_recordset(%(outcomes)s::text::jsonb) as s(
        id bigint, state text, reason text, code text, message text, provider_id text, due_in double precision,
        receipt_in double precision, bad_address boolean, is_unknown boolean, refund boolean, attempt integer)
    -- Locks the batches first.
    where (select count(*) from owned) >= 0
),
-- use: notifications.locked_deliveries
-- With the state under the lock: another job may have settled the delivery while this statement waited for the batch.
reported as materialized (
    select wanted.*, locked.state as before from wanted join locked on locked.id = wanted.id
    -- Locks all deliveries first.
    where (select count(*) from locked) >= 0
),
-- An address that the provider does not know is deactivated with the reason.
moved as (
    update sereno.deliveries
    set state = outcome.state, reason = outcome.reason, error_code = coalesce(outcome.code, case when outcome.state in ('pending', 'unknown') then error_code end),
        error_message = coalesce(outcome.message, case when outcome.state in ('pending', 'unknown') then error_message end),
        provider_id = coalesce(outcome.provider_id, deliveries.provider_id),
        due_at = coalesce((select now from clock) + make_interval(secs => outcome.due_in), due_at),
        receipt_at = (select now from clock) + make_interval(secs => outcome.receipt_in),
        sent_at = case when outcome.state in ('sent', 'delivered') then (select now from clock) else sent_at end,
        attempts = attempts - case when outcome.refund then 1 else 0 end,
        unknowns = unknowns + case when outcome.is_unknown then 1 else 0 end,
        job_id = case when outcome.state = 'unknown' then job_id end, changed_at = (select now from clock)
    from reported as outcome
    where deliveries.id = outcome.id and (outcome.attempt is null or outcome.attempt = deliveries.attempts)
      and case outcome.before when 'sending' then deliveries.id = any(array(select unnest(owned.deliveries) from owned))
                                when 'unknown' then job_id = %(job)s else false end
    returning deliveries.id, deliveries.state, recipient_id, channel, account, deliveries.due_at, digest, address_id,
              deliveries.provider_id, outcome.receipt_in, outcome.bad_address, outcome.code, outcome.message
),
-- Deliveries that are retried, in one batch per due time. The batches of a job are of one queue.
again as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, gathers, deliveries)
    select 'send', channel, account, (select queue from owned limit 1), due_at, bool_or(digest is not null), array_agg(id order by id)
    from (select *, (row_number() over (partition by channel, account, due_at order by id) - 1) / 100 as part
          from moved where state = 'pending') as waiting
    group by channel, account, due_at, part
),
-- Deliveries collected into a message that was not sent get its state.
unsent_parts as (
    update sereno.deliveries
    set state = moved.state, reason = 'as delivery ' || moved.id || ', whose message included it', changed_at = (select now from clock)
    from moved
    where moved.digest is not null and moved.state in ('failed', 'invalid', 'dead') and deliveries.recipient_id = moved.recipient_id
      and deliveries.digest = moved.digest and deliveries.digest_of = moved.id and deliveries.state = 'skipped'
),
receipts as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, ends_at, deliveries)
    select 'ask', channel, account, (select queue from owned limit 1), (select now from clock) + make_interval(secs => min(receipt_in)),
           (select now from clock) + make_interval(secs => %(receipts_for)s), array_agg(id order by id)
    from (select *, (row_number() over (partition by channel, account order by id) - 1) / 100 as part
          from moved where receipt_in is not null) as asked
    group by channel, account, part
),
named as (
    insert into sereno.message_ids (channel, account, provider_id, delivery_id)
    select channel, account, provider_id, id from moved where %(named)s and provider_id is not null
    on conflict do nothing
),
ended as (
    delete from sereno.batches where %(last)s and id = any(array(select id from owned))
),
bad as materialized (
    select a.id, moved.code, moved.message from moved join sereno.addresses a on a.id = moved.address_id
    where moved.bad_address and a.state = 'active' order by a.id for update of a
),
addresses_ended as (
    update sereno.addresses
    set state = 'invalid', reason = coalesce(bad.code, 'refused') || coalesce(': ' || bad.message, ''), changed_at = (select now from clock)
    from bad
    where addresses.id = bad.id
)
select coalesce((select json_agg(id) from moved), '[]')::text, extract(epoch from (select now from clock))::float;

-- name: record_accepted
-- `record` for outcomes that are all `sent` or `delivered`: the usual case, without what the others need. Deliveries that
-- were collected into these messages do not change, so they are not locked.
with clock as materialized (select sereno.now() as now),
owned as materialized (
    select id, queue, deliveries from sereno.batches where id = any(%(batches)s::text::bigint[]) order by id for update
),
wanted as materialized (
    select * from jsonb_to_recordset(%(outcomes)s::text::jsonb) as s(
        id bigint, state text, provider_id text, receipt_in double precision, attempt integer)
    -- Locks the batches first.
    where (select count(*) from owned) >= 0
),
locked as materialized (
    select id, state from sereno.deliveries where id = any(array(select id from wanted)) order by id for update
),
reported as materialized (
    select wanted.*, locked.state as before from wanted join locked on locked.id = wanted.id
    -- Locks all deliveries first.
    where (select count(*) from locked) >= 0
),
moved as (
    update sereno.deliveries
    set state = outcome.state, reason = null, error_code = null, error_message = null,
        provider_id = coalesce(outcome.provider_id, deliveries.provider_id),
        receipt_at = (select now from clock) + make_interval(secs => outcome.receipt_in),
        sent_at = (select now from clock), job_id = null, changed_at = (select now from clock)
    from reported as outcome
    where deliveries.id = outcome.id and outcome.attempt = deliveries.attempts
      and case outcome.before when 'sending' then deliveries.id = any(array(select unnest(owned.deliveries) from owned))
                                when 'unknown' then job_id = %(job)s else false end
    returning deliveries.id, channel, account, deliveries.provider_id, outcome.receipt_in
),
receipts as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, ends_at, deliveries)
    select 'ask', channel, account, (select queue from owned limit 1), (select now from clock) + make_interval(secs => min(receipt_in)),
           (select now from clock) + make_interval(secs => %(receipts_for)s), array_agg(id order by id)
    from (select *, (row_number() over (partition by channel, account order by id) - 1) / 100 as part
          from moved where receipt_in is not null) as asked
    group by channel, account, part
),
named as (
    insert into sereno.message_ids (channel, account, provider_id, delivery_id)
    select channel, account, provider_id, id from moved where %(named)s and provider_id is not null
    on conflict do nothing
),
ended as (
    delete from sereno.batches where %(last)s and id = any(array(select id from owned))
)
select coalesce((select json_agg(id) from moved), '[]')::text, extract(epoch from (select now from clock))::float;

-- name: put_into_inbox
-- Inserts messages into inboxes and marks their deliveries as delivered.
with clock as materialized (select sereno.now() as now),
owned as materialized (
    select id, deliveries from sereno.batches where id = any(%(batches)s::text::bigint[]) order by id for update
),
wanted as materialized (
    select * from jsonb_to_recordset(%(messages)s::text::jsonb) as s(
        id bigint, attempt integer, recipient bigint, event text, title text, body text, data jsonb)
    -- Locks the batches first.
    where (select count(*) from owned) >= 0
),
-- use: notifications.locked_deliveries
message as materialized (select wanted.* from wanted join locked on locked.id = wanted.id),
moved as (
    update sereno.deliveries
    set state = 'delivered', reason = null, sent_at = (select now from clock), job_id = null, changed_at = (select now from clock)
    from message
    where deliveries.id = message.id and deliveries.state = 'sending' and deliveries.attempts = message.attempt
      and deliveries.id = any(array(select unnest(owned.deliveries) from owned))
    returning deliveries.id
),
put as (
    insert into sereno.inbox (recipient_id, delivery_id, event, title, body, data)
    select recipient, message.id, event, title, body, data from message join moved on moved.id = message.id
    on conflict do nothing
),
ended as (
    delete from sereno.batches where %(last)s and id = any(array(select id from owned))
)
select count(*) from moved;
