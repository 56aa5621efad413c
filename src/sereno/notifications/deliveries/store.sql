-- Deliveries: claimed in batches, sent, and recorded.
-- Lock order in every transaction: batches by id, deliveries by id, addresses by id. A statement that changes a delivery
-- also changes the deliveries that were collected into it, so it locks them in the same pass.

-- name: take_batches
-- Claims the next batches of a channel and queue. A separate statement: a function sees what was committed while it runs, the
-- statement around it does not, and would treat such a batch as empty.
select batch, ids from sereno.take_batches(
    %(purpose)s, %(channel)s, %(account)s, %(job)s, %(most)s, make_interval(secs => %(again)s), %(queue)s);

-- name: take
-- Claims the deliveries of claimed batches, with a last check: expired ones are marked expired, unwanted and cancelled ones
-- and those without a good address are skipped, those in quiet hours wait. `sending` is committed before a provider is called.
-- What belongs to the deliveries is read in one index scan for each table, not in one for each delivery.
with clock as materialized (select sereno.now() as now),
wanted as materialized (select unnest(%(ids)s::text::bigint[]) as id),
-- use: notifications.locked_deliveries
-- The events, with the preferences that hold for recipients who have none of their own.
event as materialized (
    select e.id, e.type, e.payload, e.category, e.critical, e.opt_in, e.trace, e.tenant, e.topic, e.cancelled_at, e.variants,
           common.wanted, common.condition, common.quiet
    from sereno.events e
    cross join lateral (
        select sereno.first(p.wanted order by weight desc) as wanted, sereno.first(p.condition order by weight desc) as condition,
               sereno.first(p.quiet order by weight desc) as quiet
        from sereno.preferences p
        where p.recipient_id is null and p.tenant = e.tenant and (p.category is null or p.category = e.category)
          and (p.event is null or p.event = e.type) and (p.channel is null or p.channel = %(channel)s)
    ) as common
    where e.id = any(array(select distinct event_id from locked))
),
-- The logic of sereno.choice, for all recipients at once.
own as (
    select event.id as event_id, p.recipient_id, sereno.first(p.wanted order by weight desc) as wanted,
           sereno.first(p.condition order by weight desc) as condition, sereno.first(p.quiet order by weight desc) as quiet
    from sereno.preferences p
    join event on (p.category is null or p.category = event.category) and (p.event is null or p.event = event.type)
    where p.recipient_id = any(array(select recipient_id from locked)) and (p.channel is null or p.channel = %(channel)s)
    group by event.id, p.recipient_id
),
judged as (
    select d.id, d.address_id, r.key, r.locale, a.address, a.keys,
           case when d.expires_at <= (select now from clock) then 'no longer true'
                when e.id is null then 'its event is gone'
                when r.id is null then 'the recipient is gone'
                -- A delivery that carries others of a digest is sent, for their sake. Looked up one by one, by key, as is the
                -- subscription below: `exists` could read the whole table.
                when e.cancelled_at is not null and (d.digest is null or (
                    select part.id from sereno.deliveries part
                    where part.recipient_id = d.recipient_id and part.digest = d.digest and part.digest_of = d.id limit 1) is null)
                    then 'cancelled'
                when d.address_id is not null and a.state is distinct from 'active'
                     -- The message that asks for the confirmation of an address.
                     and (e.type <> 'sereno.confirm_address' or a.state is distinct from 'unverified')
                    then 'address ' || coalesce(a.state || coalesce(': ' || a.reason, ''), 'is gone')
                when e.topic is not null and (
                    select s.recipient_id from sereno.subscriptions s
                    where s.tenant = e.tenant and s.topic = e.topic and s.recipient_id = d.recipient_id) is null then 'not subscribed'
                when e.critical then null
                when not coalesce(own.wanted, e.wanted, not e.opt_in) then 'preference off'
                when not coalesce(jsonb_path_match(e.payload, coalesce(own.condition, e.condition), '{}', true),
                                  own.condition is null and e.condition is null) then 'condition'
           end as refused,
           case when not e.critical and coalesce(own.quiet, e.quiet) is not null
                then sereno.quiet_until(coalesce(own.quiet, e.quiet), r.zone, (select now from clock)) end as quiet
    from locked d
    left join event e on e.id = d.event_id
    left join sereno.recipients r on r.id = d.recipient_id
    left join sereno.addresses a on a.id = d.address_id
    left join own on own.event_id = d.event_id and own.recipient_id = d.recipient_id
    where d.state = 'pending' and d.due_at <= (select now from clock)
    offset 0
),
seen as materialized (
    select *, case when refused is null and quiet is null then 'sending'
                   when refused is null then 'pending'
                   when refused = 'no longer true' then 'expired'
                   when refused in ('its event is gone', 'the recipient is gone') then 'failed'
                   else 'skipped' end as state
    from judged
),
-- A delivery that was collected into another message in the meantime is no longer pending, and is not changed.
taken as (
    update sereno.deliveries
    set state = seen.state, reason = case when seen.state = 'pending' then 'quiet hours' else seen.refused end,
        due_at = case when seen.state = 'pending' then seen.quiet else due_at end,
        job_id = case when seen.state = 'sending' then %(job)s::bigint end,
        attempts = attempts + case when seen.state = 'sending' then 1 else 0 end,
        changed_at = (select now from clock)
    from seen
    where deliveries.id = seen.id and deliveries.state = 'pending'
    returning deliveries.id, deliveries.state, deliveries.attempts, deliveries.due_at, deliveries.tenant, deliveries.digest,
              deliveries.recipient_id, deliveries.event_id, deliveries.reason, deliveries.created_at,
              deliveries.address_id, seen.address, seen.keys, seen.key, seen.locale
)
select coalesce(json_agg(json_build_array(
           id, event_id, address_id, address, keys, recipient_id, key, locale, nullif(tenant, ''), attempts,
           date_part('epoch', (select now from clock) - created_at), digest)
           order by id) filter (where state = 'sending'), '[]')::text,
       (select coalesce(json_agg(json_build_array(id, type, payload, category, critical, trace, variants)), '[]') from event)::text,
       array_agg(id) filter (where state <> 'sending')
from taken;

-- name: settle_unsent
-- After `take`, for claimed deliveries that are not sent: those in quiet hours wait in new batches, and deliveries that
-- were collected into the others get their state. `take` has locked all of them.
with clock as materialized (select sereno.now() as now),
unsent as materialized (
    select id, recipient_id, event_id, tenant, state, reason, digest, due_at from sereno.deliveries where id = any(%(ids)s)
),
unsent_parts as (
    update sereno.deliveries
    set state = unsent.state, reason = 'as delivery ' || unsent.id || ', whose message included it', changed_at = (select now from clock)
    from unsent
    where unsent.digest is not null and unsent.state in ('expired', 'skipped', 'failed') and deliveries.recipient_id = unsent.recipient_id
      and deliveries.digest = unsent.digest and deliveries.digest_of = unsent.id and deliveries.state = 'skipped'
),
held as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, gathers, deliveries)
    select 'send', %(channel)s, %(account)s, %(queue)s, due_at, bool_or(digest is not null), array_agg(id order by id)
    from unsent where state = 'pending' group by due_at
)
select (select coalesce(json_agg(distinct date_part('epoch', due_at - (select now from clock))), '[]')
        from unsent where state = 'pending')::text,
       (select coalesce(json_agg(json_build_array(%(channel)s::text, e.type, counted.tenant, counted.state, counted.reason, counted.count)), '[]')
        from (select event_id, tenant, state, reason, count(*) as count from unsent group by 1, 2, 3, 4) as counted
        left join sereno.events e on e.id = counted.event_id)::text;

-- name: end
-- Deletes finished batches. The job that claimed them in this transaction holds their locks.
delete from sereno.batches where id = any(%(batches)s);

-- name: gather
-- Of claimed deliveries that belong into one message (digest), the first carries it and the others are completed. So
-- are the pending ones of the same digest: the window began with the first. Returns all payloads for each carrier.
with mine as materialized (
    select id, recipient_id, address_id, digest, channel, account,
           min(id) over (partition by recipient_id, address_id, digest) as carrier
    from sereno.deliveries where id = any(%(ids)s) and state = 'sending' and job_id = %(job)s and digest is not null
),
found as materialized (
    select d.id, d.recipient_id, d.digest, mine.carrier
    from mine join sereno.deliveries d
      on d.recipient_id = mine.recipient_id and d.digest = mine.digest and d.channel = mine.channel and d.account = mine.account
     and d.address_id is not distinct from mine.address_id and d.state = 'pending'
    where mine.id = mine.carrier and (d.expires_at is null or d.expires_at > sereno.now())
      and (d.attempts = 0 or d.due_at <= sereno.now())
      -- By key: a join would read all events.
      and (select e.cancelled_at from sereno.events e where e.id = d.event_id) is null
    -- Of all carriers together: what is left over is sent in a second message.
    limit 10000
    for update of d skip locked
),
-- This transaction already locks deliveries, so it does not wait for more: a delivery whose collected deliveries are
-- locked elsewhere is sent separately.
theirs as materialized (
    select d.id from found join sereno.deliveries d
      on d.recipient_id = found.recipient_id and d.digest = found.digest and d.digest_of = found.id and d.state = 'skipped'
    for update of d skip locked
),
waiting as materialized (
    select id, recipient_id, digest, carrier from found
    where not exists (select from sereno.deliveries d
                      where d.recipient_id = found.recipient_id and d.digest = found.digest and d.digest_of = found.id
                        and d.state = 'skipped' and d.id not in (select id from theirs))
),
others as materialized (
    select id, recipient_id, digest, carrier from mine where id <> carrier
    union all
    select id, recipient_id, digest, carrier from waiting
),
members as materialized (
    select id, recipient_id, digest, carrier from mine where id = carrier
    union all
    select id, recipient_id, digest, carrier from others
),
-- A delivery that carried others and was not sent: they are passed on to the new carrier.
inherited as (
    update sereno.deliveries set digest_of = others.carrier, reason = 'covered by delivery ' || others.carrier
    from others
    where deliveries.recipient_id = others.recipient_id and deliveries.digest = others.digest and deliveries.digest_of = others.id
      and deliveries.state = 'skipped' and deliveries.id <> all(array(select id from others))
    returning deliveries.id
),
done as (
    update sereno.deliveries
    set state = 'skipped', reason = 'covered by delivery ' || others.carrier, digest_of = others.carrier, job_id = null, changed_at = sereno.now()
    from others
    where deliveries.id = others.id
    returning deliveries.id, event_id, tenant, channel
)
select coalesce(json_agg(json_build_array(carrier, payloads)), '[]')::text,
       (select coalesce(json_agg(json_build_array(collected.channel, e.type, collected.tenant, 'skipped', 'covered by delivery', collected.count)), '[]')
        from (select event_id, tenant, channel, count(*) as count from done group by 1, 2, 3) as collected
        left join sereno.events e on e.id = collected.event_id)::text,
       (select count(*) from inherited)
from (select carrier, json_agg(e.payload order by e.id) as payloads
      from (select id, carrier from members
            union
            select d.id, members.carrier
            from members join sereno.deliveries d
              on d.recipient_id = members.recipient_id and d.digest = members.digest and d.digest_of = members.id and d.state = 'skipped'
           ) as part
      join sereno.deliveries d on d.id = part.id join sereno.events e on e.id = d.event_id
      group by carrier) as each;

-- name: any_due
-- Whether a delivery of a queue is due on a channel that is not paused.
select exists (select from sereno.batches
               where purpose = 'send' and channel = %(channel)s and account = %(account)s and queue = %(queue)s
                 and job_id is null and due_at <= sereno.now())
   and not exists (select from sereno.channel_pauses p where p.channel = %(channel)s and p.account in ('', %(account)s));

-- name: stranded
-- Batches whose sender was lost: an earlier attempt of the same job, or a job that no longer exists. Locked, so that
-- one job settles them. A batch claimed after this statement began belongs to a job that it cannot see yet.
select coalesce(json_agg(json_build_array(lost.id, coalesce(theirs.each, '[]'), coalesce(theirs.kinds, '[]'))), '[]')::text
from (select id, deliveries, job_id from sereno.batches
      where channel = %(channel)s and account = %(account)s and queue = %(queue)s and job_id is not null
        and taken_at < sereno.now()
        and (job_id = %(job)s or not exists (select from sereno.jobs where jobs.id = job_id and jobs.state = 'running'))
      order by id limit %(most)s
      for update skip locked) as lost
cross join lateral (
    select json_agg(json_build_array(d.id, d.unknowns) order by d.id) as each,
           json_agg(json_build_array(e.type, d.tenant) order by d.id) as kinds
    from sereno.deliveries d left join sereno.events e on e.id = d.event_id
    where d.id = any(lost.deliveries) and d.state = 'sending' and d.job_id = lost.job_id) as theirs;

-- name: pause_channel
-- Nothing is sent on a paused channel, and no attempts are counted, until an operator resumes it.
insert into sereno.channel_pauses (channel, account, reason) values (%(channel)s, %(account)s, %(reason)s)
on conflict do nothing
returning channel;

-- name: resume_channel
-- Removes the pauses of a channel.
delete from sereno.channel_pauses where channel = %(channel)s and (%(account)s::text is null or account = %(account)s)
returning account;

-- name: account
-- The credentials of a tenant for a channel.
select settings::text from sereno.accounts where channel = %(channel)s and tenant = %(tenant)s;

-- name: requeue
-- Returns deliveries to pending for an operator: those that ended without arriving or whose outcome is unknown.
with found as materialized (
    select id from sereno.deliveries
    where id = any(%(ids)s) and state in ('skipped', 'failed', 'invalid', 'expired', 'dead', 'unknown', 'bounced')
    order by id for update
),
moved as (
    update sereno.deliveries
    set state = 'pending', reason = 'requeued', due_at = sereno.now(), attempts = 0, job_id = null, receipt_at = null,
        provider_id = null, expires_at = null, digest_of = null, changed_at = sereno.now()
    where id = any(array(select id from found))
    returning id, event_id, channel, account, digest
),
-- In the queue of the service that declares the event.
placed as materialized (
    select moved.*, coalesce((select declared.definition ->> 'queue'
                              from sereno.events e join sereno.event_types declared on declared.name = e.type
                              where e.id = moved.event_id), 'notifications') as queue
    from moved
),
waiting as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, gathers, deliveries)
    select 'send', channel, account, queue, sereno.now(), bool_or(digest is not null), array_agg(id order by id)
    from (select *, (row_number() over (partition by channel, account, queue order by id) - 1) / 100 as part
          from placed) as waiting
    group by channel, account, queue, part
)
select coalesce(json_agg(json_build_array(id, channel, account, queue)), '[]')::text from placed;

-- name: without_job
-- Channels and accounts with overdue deliveries of a queue that have no job, because it was cancelled, deleted or lost.
-- An index skip scan.
with recursive place(channel, account) as (
    (select channel, account from sereno.batches where purpose = 'send' and job_id is null order by channel, account limit 1)
    union all
    select next.channel, next.account
    from place cross join lateral (
        select b.channel, b.account from sereno.batches b
        where b.purpose = 'send' and b.job_id is null and (b.channel, b.account) > (place.channel, place.account)
        order by b.channel, b.account limit 1) as next
)
select channel, account from place
where exists (select from sereno.batches b
              where b.purpose = 'send' and b.job_id is null and b.channel = place.channel and b.account = place.account
                and b.queue = %(queue)s and b.due_at < sereno.now() - interval '1 minute')
  and not exists (select from sereno.channel_pauses p where p.channel = place.channel and p.account in ('', place.account))
union
select channel, account from sereno.batches
where job_id is not null and queue = %(queue)s and taken_at < sereno.now() - interval '5 minutes';

-- name: waiting_accounts
-- Accounts with pending deliveries on a channel, with the queues of their jobs.
with recursive place(account, queue) as (
    (select account, queue from sereno.batches where purpose = 'send' and job_id is null and channel = %(channel)s
     order by account, queue limit 1)
    union all
    select next.account, next.queue
    from place cross join lateral (
        select b.account, b.queue from sereno.batches b
        where b.purpose = 'send' and b.job_id is null and b.channel = %(channel)s
          and (b.account, b.queue) > (place.account, place.queue)
        order by b.account, b.queue limit 1) as next
)
select account, queue from place;
