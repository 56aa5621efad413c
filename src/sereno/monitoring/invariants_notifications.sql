-- The invariants of notifications, as in invariants.sql: each query must return no rows, and returns at most twenty.

-- name: events_matched
-- A due event has its audience, or a job that finds it. Ten minutes of tolerance cover a busy queue.
with late as materialized (
    select id, type, due_at from sereno.events
    where matched_at is null and due_at < sereno.now() - interval '10 minutes' order by due_at limit %(window)s
)
select late.id, 'the event ' || type || ' was due at ' || due_at || ', and no job matches its audience'
from late
where not exists (select from sereno.jobs where task = 'sereno.fan_out' and args ->> 'event' = late.id::text)
order by late.id limit 20;

-- name: deliveries_once
-- One delivery for each event, recipient, channel and address: the unique constraint exists, is valid, and holds.
select 0 as id, 'the constraint deliveries_once is missing or not valid' as what
where not exists (select from pg_constraint join pg_index on indexrelid = conindid
                  where conrelid = 'sereno.deliveries'::regclass and conname = 'deliveries_once' and contype = 'u'
                    and indisvalid and indisunique and indnullsnotdistinct and indpred is null)
union all
(select min(id), 'event ' || event_id || ' has ' || count(*) || ' deliveries by ' || channel || ' for recipient ' || recipient_id
 from (select id, event_id, recipient_id, channel, address_id from sereno.deliveries order by id desc limit %(window)s) as newest
 group by event_id, recipient_id, channel, address_id having count(*) > 1
 order by min(id) limit 20)
order by id limit 20;

-- name: deliveries_legal
-- The state of a delivery is consistent with its other columns. A refused address is not active, unless it was reactivated
-- since; ten seconds of tolerance cover overlapping transactions.
with newest as materialized (
    select id, state, reason, address_id, job_id, sent_at, changed_at from sereno.deliveries order by id desc limit %(window)s
)
select newest.id, 'it is ' || newest.state || case
           when newest.state = 'invalid' then ', and its address is active'
           when newest.state = 'sending' then ' by no job'
           when newest.state in ('sent', 'delivered', 'read') then ', and was never sent'
           else ' without a reason' end
from newest left join sereno.addresses as address on address.id = newest.address_id and newest.state = 'invalid'
where case when newest.state in ('sent', 'delivered', 'read') then sent_at is null
           when newest.state = 'sending' then job_id is null
           when newest.state in ('skipped', 'expired', 'dead') then coalesce(newest.reason, '') = ''
           when newest.state = 'invalid' then address.state = 'active' and address.changed_at < newest.changed_at - interval '10 seconds'
           else false end
order by newest.id limit 20;

-- name: failed_listed
-- The table of failed deliveries has the deliveries that failed, and no others: the newest rows of both are compared.
select id, what
from (
    select failed.id, 'it is ' || failed.state || ', and ' || coalesce(known.state, 'not') || ' among the failed deliveries' as what
    from (select id, state, channel, tenant
          from (select id, state, channel, tenant from sereno.deliveries order by id desc limit %(window)s) as newest
          where state = any(sereno.failed_states())) as failed
    left join sereno.failed_deliveries as known on known.delivery_id = failed.id
    where (known.state, known.channel, known.tenant) is distinct from (failed.state, failed.channel, failed.tenant)
    union
    select known.delivery_id,
           'it is ' || coalesce(delivery.state, 'gone') || ', and ' || known.state || ' among the failed deliveries'
    from (select delivery_id, state from sereno.failed_deliveries order by delivery_id desc limit %(window)s) as known
    left join sereno.deliveries as delivery on delivery.id = known.delivery_id
    where delivery.state is distinct from known.state
) as wrong
order by id limit 20;

-- name: sending_has_a_job
-- A delivery that is being sent has a live job. Maintenance has ten minutes to recover deliveries of dead jobs.
select deliveries[1], 'it has been sending since ' || taken_at || ', and its job ' || job_id || ' is gone'
from (select * from sereno.batches where job_id is not null limit %(window)s) as taken
where taken_at < sereno.now() - interval '10 minutes'
  and not exists (select from sereno.jobs where jobs.id = taken.job_id)
order by deliveries[1] limit 20;

-- name: waiting_is_queued
-- A delivery that is pending, being sent or waiting for a receipt is in a batch.
with waiting as materialized (
    select id, state, case when state = 'sent' then 'ask' else 'send' end as purpose
    from (select id, state, receipt_at from sereno.deliveries order by id desc limit %(window)s) as newest
    where state in ('pending', 'sending') or (state = 'sent' and receipt_at is not null)
),
queued as materialized (
    select distinct purpose, unnest(deliveries) as id from sereno.batches
)
select waiting.id, 'it is ' || state || ', and in no batch to ' || purpose
from waiting
where not exists (select from queued where queued.id = waiting.id and queued.purpose = waiting.purpose)
order by waiting.id limit 20;

-- name: pending_has_a_job
-- A delivery that is long overdue has a job of its channel that will send it, or its channel is paused.
with late as materialized (
    select deliveries[1] as id, channel, account, queue, due_at from sereno.batches
    where purpose = 'send' and job_id is null and due_at < sereno.now() - interval '10 minutes'
    order by channel, account, due_at limit %(window)s
),
jobs as materialized (
    select distinct args ->> 'channel' as channel, args ->> 'account' as account, queue from sereno.jobs where task = 'sereno.deliver'
)
select late.id, 'it was due at ' || due_at || ', and no job sends by ' || late.channel
from late
where not exists (select from jobs where jobs.channel = late.channel and jobs.account = late.account and jobs.queue = late.queue)
  and not exists (select from sereno.channel_pauses as pause
                  where pause.channel = late.channel and pause.account in ('', late.account))
order by late.id limit 20;

-- name: receipts_have_a_job
-- A delivery that waits for a receipt has a job that polls for it, until its time for that has ended.
with late as materialized (
    select deliveries[1] as id, channel, account, due_at from sereno.batches
    where purpose = 'ask' and job_id is null and due_at < sereno.now() - interval '10 minutes' and ends_at > sereno.now()
    order by channel, account, due_at limit %(window)s
),
jobs as materialized (
    select distinct args ->> 'channel' as channel, args ->> 'account' as account from sereno.jobs where task = 'sereno.receipts'
)
select late.id, 'its receipt was to be polled at ' || due_at || ', and no job polls by ' || late.channel
from late
where not exists (select from jobs where jobs.channel = late.channel and jobs.account = late.account)
order by late.id limit 20;

-- name: inbox_delivered
-- An inbox entry was delivered to the owner of the inbox. Its delivery may be in the archive by now.
select entry.id, 'its delivery ' || entry.delivery_id || ' is ' || case
           when delivery.recipient_id <> entry.recipient_id then 'of another recipient' else coalesce(delivery.state, 'gone') end
from (select id, delivery_id, recipient_id from sereno.inbox order by id desc limit %(window)s) as entry
left join sereno.deliveries as delivery on delivery.id = entry.delivery_id
where case when delivery.id is not null then delivery.state not in ('delivered', 'read') or delivery.recipient_id <> entry.recipient_id
           else not exists (select from sereno.archive_files where kind = 'deliveries' and entry.delivery_id between first_id and last_id)
                and not exists (select from sereno.archive_batches where kind = 'deliveries' and verified_at is null) end
order by entry.id limit 20;

-- name: subscriptions_scoped
-- A recipient is subscribed to topics of its own tenant: an event for a topic must not leave its tenant.
select newest.recipient_id, 'it is subscribed to ' || topic || ' in the tenant ' || coalesce(nullif(newest.tenant, ''), 'none')
       || ', and belongs to ' || coalesce(nullif(recipients.tenant, ''), 'none')
from (select tenant, topic, recipient_id from sereno.subscriptions order by recipient_id desc limit %(window)s) as newest
left join sereno.recipients on recipients.id = newest.recipient_id
where recipients.tenant is distinct from newest.tenant
order by newest.recipient_id limit 20;
