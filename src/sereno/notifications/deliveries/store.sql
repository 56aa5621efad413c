-- Deliveries: claimed in batches, sent, and recorded.
-- Lock order in every transaction: batches by id, deliveries by id, addresses by id. A statement that changes a delivery
-- also changes the deliveries that were collected into it, so it locks them in the same pass.

-- name: take_batches
-- Claims the next batches of a channel. A separate statement: a function sees what was committed while it runs, the
-- statement around it does not, and would treat such a batch as empty.
select batch, ids from sereno.take_batches(%(purpose)s, %(channel)s, %(account)s, %(job)s, %(most)s, make_interval(secs => %(again)s));

-- name: take
-- Claims the deliveries of claimed batches, with a last check: expired ones are marked expired, unwanted ones and those
-- without a good address are skipped, those in quiet hours wait. `sending` is committed before a provider is called.
with clock as materialized (select sereno.now() as now),
wanted as materialized (select unnest(%(ids)s::text::bigint[]) as id),
-- use: notifications.locked_deliveries
seen as materialized (
    select d.id, d.event_id, d.address_id, d.recipient_id, d.digest, r.key, r.locale, a.address, a.keys,
           case when d.expires_at <= clock.now then 'expired'
                when e.id is null or r.id is null then 'failed'
                when d.address_id is not null and a.state is distinct from 'active' then 'skipped'
                when not e.critical and not coalesce(choice.wanted, not e.opt_in) then 'skipped'
                when not e.critical and not coalesce(jsonb_path_match(e.payload, choice.condition, '{}', true),
                                                     choice.condition is null) then 'skipped'
                else 'sending' end as state,
           case when d.expires_at <= clock.now then 'no longer true'
                when e.id is null then 'its event is gone'
                when r.id is null then 'the recipient is gone'
                when d.address_id is not null and a.state is distinct from 'active'
                    then 'address ' || coalesce(a.state || coalesce(': ' || a.reason, ''), 'is gone')
                when not e.critical and not coalesce(choice.wanted, not e.opt_in) then 'preference off'
                when not e.critical and not coalesce(jsonb_path_match(e.payload, choice.condition, '{}', true),
                                                     choice.condition is null) then 'condition'
           end as reason,
           case when choice.quiet is not null and not e.critical then sereno.quiet_until(choice.quiet, r.zone, clock.now) end as quiet
    from clock cross join sereno.deliveries d
    left join sereno.events e on e.id = d.event_id
    left join sereno.recipients r on r.id = d.recipient_id
    left join sereno.addresses a on a.id = d.address_id
    -- The logic of sereno.choice, inlined because a function call would cost more than the rest of the statement.
    left join lateral (
        select (array_agg(p.wanted order by weight desc) filter (where p.wanted is not null))[1] as wanted,
               (array_agg(p.condition order by weight desc) filter (where p.condition is not null))[1] as condition,
               (array_agg(p.quiet order by weight desc) filter (where p.quiet is not null))[1] as quiet
        from (select * from sereno.preferences where recipient_id = d.recipient_id
              union all
              select * from sereno.preferences where recipient_id is null and preferences.tenant = d.tenant) as p
        where (p.category is null or p.category = e.category) and (p.event is null or p.event = e.type)
          and (p.channel is null or p.channel = d.channel)
    ) as choice on true
    where d.id = any(array(select id from locked)) and d.state = 'pending' and d.due_at <= clock.now
),
-- A delivery that was collected into another message in the meantime is no longer pending, and is not changed.
taken as (
    update sereno.deliveries
    set state = case when seen.state = 'sending' and seen.quiet is not null then 'pending' else seen.state end,
        reason = case when seen.state = 'sending' and seen.quiet is not null then 'quiet hours' else seen.reason end,
        due_at = coalesce(case when seen.state = 'sending' then seen.quiet end, due_at),
        job_id = case when seen.state = 'sending' and seen.quiet is null then %(job)s::bigint end,
        attempts = attempts + case when seen.state = 'sending' and seen.quiet is null then 1 else 0 end,
        changed_at = (select now from clock)
    from seen
    where deliveries.id = seen.id and deliveries.state = 'pending'
    returning deliveries.id, deliveries.state, deliveries.attempts, deliveries.due_at, deliveries.tenant, deliveries.digest,
              deliveries.recipient_id, deliveries.event_id, deliveries.reason, deliveries.created_at
),
-- Deliveries collected into a message that is not sent get its state.
unsent_parts as (
    update sereno.deliveries
    set state = taken.state, reason = 'as delivery ' || taken.id || ', whose message included it', changed_at = (select now from clock)
    from taken
    where taken.digest is not null and taken.state in ('expired', 'skipped', 'failed') and deliveries.recipient_id = taken.recipient_id
      and deliveries.digest = taken.digest and deliveries.digest_of = taken.id and deliveries.state = 'skipped'
),
held as (
    insert into sereno.batches (purpose, channel, account, due_at, gathers, deliveries)
    select 'send', %(channel)s, %(account)s, due_at, bool_or(digest is not null), array_agg(id order by id)
    from taken where state = 'pending' group by due_at
)
select coalesce(json_agg(json_build_array(
           taken.id, seen.event_id, seen.address_id, seen.address, seen.keys, seen.recipient_id, seen.key, seen.locale,
           nullif(taken.tenant, ''), taken.attempts, extract(epoch from (select now from clock) - taken.created_at)::float, seen.digest)
           order by taken.id) filter (where taken.state = 'sending'), '[]')::text,
       (select coalesce(json_agg(json_build_array(e.id, e.type, e.payload, e.category, e.critical)), '[]')
        from sereno.events e where e.id in (select event_id from seen where state = 'sending'))::text,
       (select coalesce(json_agg(distinct extract(epoch from due_at - (select now from clock))::float), '[]')
        from taken where state = 'pending')::text,
       (select coalesce(json_agg(json_build_array(%(channel)s::text, e.type, unsent.tenant, unsent.state, unsent.reason, unsent.count)), '[]')
        from (select event_id, tenant, state, reason, count(*) as count from taken where state <> 'sending' group by 1, 2, 3, 4) as unsent
        left join sereno.events e on e.id = unsent.event_id)::text
from taken join seen on seen.id = taken.id;

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
    limit 500
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
from (select mine.carrier,
             (select json_agg(e.payload order by e.id)
              from sereno.deliveries d join sereno.events e on e.id = d.event_id
              where d.recipient_id = mine.recipient_id and d.digest = mine.digest
                and (d.id = mine.carrier or (d.digest_of = mine.carrier and d.state = 'skipped')
                     or d.id in (select id from others where others.carrier = mine.carrier)
                     or (d.state = 'skipped' and d.digest_of in (select id from others where others.carrier = mine.carrier)))) as payloads
      from mine where mine.id = mine.carrier) as each;

-- name: any_due
-- Whether a delivery is due on a channel that is not paused.
select exists (select from sereno.batches
               where purpose = 'send' and channel = %(channel)s and account = %(account)s and job_id is null
                 and due_at <= sereno.now())
   and not exists (select from sereno.channel_pauses p where p.channel = %(channel)s and p.account in ('', %(account)s));

-- name: stranded
-- Batches whose sender was lost: an earlier attempt of the same job, or a job that no longer exists. Locked, so that
-- one job settles them. A batch claimed after this statement began belongs to a job that it cannot see yet.
select coalesce(json_agg(json_build_array(lost.id, coalesce(theirs.each, '[]'), coalesce(theirs.kinds, '[]'))), '[]')::text
from (select id, deliveries, job_id from sereno.batches
      where channel = %(channel)s and account = %(account)s and job_id is not null and taken_at < sereno.now()
        and (job_id = %(job)s or not exists (select from sereno.jobs where jobs.id = job_id and jobs.state = 'running'))
      order by id limit %(most)s
      for update skip locked) as lost
cross join lateral (
    select json_agg(json_build_array(d.id, d.unknowns) order by d.id) as each,
           json_agg(json_build_array(e.type, d.tenant) order by d.id) as kinds
    from sereno.deliveries d left join sereno.events e on e.id = d.event_id
    where d.id = any(lost.deliveries) and d.state = 'sending' and d.job_id = lost.job_id) as theirs;

-- name: record
-- Records the outcomes of claimed deliveries. The batches are the right to do so: a job that settled them for a sender
-- that seemed dead has deleted them. A worker that was only slow may still record an outcome that is unknown otherwise.
with clock as materialized (select sereno.now() as now),
owned as materialized (
    select id, deliveries from sereno.batches where id = any(%(batches)s) order by id for update
),
wanted as materialized (
    select * from jsonb_to_recordset(%(outcomes)s::text::jsonb) as s(
        id bigint, state text, reason text, code text, message text, provider_id text, due_in double precision,
        receipt_in double precision, bad_address boolean, is_unknown boolean, refund boolean, attempt integer)
    -- Locks the batches first.
    where (select count(*) from owned) >= 0
),
-- use: notifications.locked_deliveries
outcome as materialized (select wanted.* from wanted join locked on locked.id = wanted.id),
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
    from outcome
    where deliveries.id = outcome.id and (outcome.attempt is null or outcome.attempt = deliveries.attempts)
      and case deliveries.state when 'sending' then deliveries.id = any(array(select unnest(owned.deliveries) from owned))
                                when 'unknown' then job_id = %(job)s else false end
    returning deliveries.id, deliveries.state, recipient_id, channel, account, deliveries.due_at, digest, address_id,
              deliveries.provider_id, outcome.receipt_in, outcome.bad_address, outcome.code, outcome.message
),
-- Deliveries that are retried, in one batch per due time.
again as (
    insert into sereno.batches (purpose, channel, account, due_at, gathers, deliveries)
    select 'send', channel, account, due_at, bool_or(digest is not null), array_agg(id order by id)
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
    insert into sereno.batches (purpose, channel, account, due_at, ends_at, deliveries)
    select 'ask', channel, account, (select now from clock) + make_interval(secs => min(receipt_in)),
           (select now from clock) + make_interval(secs => %(receipts_for)s), array_agg(id order by id)
    from moved where receipt_in is not null
    group by channel, account
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

-- name: put_into_inbox
-- Inserts messages into inboxes and marks their deliveries as delivered.
with clock as materialized (select sereno.now() as now),
owned as materialized (
    select id, deliveries from sereno.batches where id = any(%(batches)s) order by id for update
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
    returning id, channel, account, digest
),
waiting as (
    insert into sereno.batches (purpose, channel, account, due_at, gathers, deliveries)
    select 'send', channel, account, sereno.now(), bool_or(digest is not null), array_agg(id order by id)
    from (select *, (row_number() over (partition by channel, account order by id) - 1) / 100 as part from moved) as waiting
    group by channel, account, part
)
select coalesce(json_agg(json_build_array(id, channel, account)), '[]')::text from moved;

-- name: without_job
-- Channels and accounts with overdue deliveries that have no job, because it was cancelled, deleted or lost. An index
-- skip scan.
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
                and b.due_at < sereno.now() - interval '1 minute')
  and not exists (select from sereno.channel_pauses p where p.channel = place.channel and p.account in ('', place.account))
union
select channel, account from sereno.batches where job_id is not null and taken_at < sereno.now() - interval '5 minutes';

-- name: waiting_accounts
-- Accounts with pending deliveries on a channel.
with recursive place(account) as (
    (select account from sereno.batches where purpose = 'send' and job_id is null and channel = %(channel)s order by account limit 1)
    union all
    select next.account
    from place cross join lateral (
        select b.account from sereno.batches b
        where b.purpose = 'send' and b.job_id is null and b.channel = %(channel)s and b.account > place.account
        order by b.account limit 1) as next
)
select account from place;
