-- Deliveries: taken in batches, sent, and what became of each.

-- name: take
-- The next batch of a channel. Looked at once more before it leaves: what is no longer true is expired, what is no longer
-- wanted or has no good address is skipped, what falls into quiet hours waits. `sending` is committed before anybody is called.
with clock as materialized (select sereno.now() as now),
due as materialized (
    select id from sereno.deliveries
    where state = 'pending' and channel = %(channel)s and account = %(account)s and due_at <= (select now from clock)
      and not exists (select from sereno.channel_pauses where channel_pauses.channel = %(channel)s
                        and channel_pauses.account in ('', %(account)s))
    order by due_at, id limit %(batch)s
    for update skip locked
),
seen as materialized (
    select d.id, d.address_id, d.recipient_id, d.digest, e.type, e.payload, e.category, e.critical, r.key, r.locale, r.zone,
           a.address, a.keys,
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
    from clock cross join due join sereno.deliveries d on d.id = due.id
    left join sereno.events e on e.id = d.event_id
    left join sereno.recipients r on r.id = d.recipient_id
    left join sereno.addresses a on a.id = d.address_id
    -- As sereno.choice does it; written out, because a function would cost more than all the rest.
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
),
taken as (
    update sereno.deliveries
    set state = case when seen.state = 'sending' and seen.quiet is not null then 'pending' else seen.state end,
        reason = case when seen.state = 'sending' and seen.quiet is not null then 'quiet hours' else seen.reason end,
        due_at = coalesce(case when seen.state = 'sending' then seen.quiet end, due_at),
        job_id = case when seen.state = 'sending' and seen.quiet is null then %(job)s::bigint end,
        attempts = attempts + case when seen.state = 'sending' and seen.quiet is null then 1 else 0 end,
        changed_at = (select now from clock)
    from seen
    where deliveries.id = seen.id
    returning deliveries.id, deliveries.state, deliveries.attempts, deliveries.due_at, deliveries.tenant
)
select coalesce(json_agg(json_build_array(
           taken.id, seen.address_id, seen.address, seen.keys, seen.recipient_id, seen.key, seen.locale, nullif(taken.tenant, ''),
           seen.type, seen.payload, taken.attempts, seen.digest) order by taken.id) filter (where taken.state = 'sending'), '[]')::text,
       count(*),
       extract(epoch from min(taken.due_at) filter (where taken.state = 'pending') - (select now from clock))::float
from taken join seen on seen.id = taken.id;

-- name: gather
-- Of those that are being sent and belong into one message, the first carries it; the others are done with. So are those of
-- the same kind that still wait: the time to gather began with the first. Answers for each carrier the payloads of the others.
with mine as materialized (
    select id, recipient_id, address_id, digest, channel,
           min(id) over (partition by recipient_id, address_id, digest) as carrier
    from sereno.deliveries where id = any(%(ids)s) and state = 'sending' and job_id = %(job)s and digest is not null
),
waiting as materialized (
    select d.id, mine.carrier
    from mine join sereno.deliveries d
      on d.recipient_id = mine.recipient_id and d.digest = mine.digest and d.channel = mine.channel
     and d.address_id is not distinct from mine.address_id and d.state = 'pending'
    where mine.id = mine.carrier
    for update of d skip locked
),
others as materialized (
    select id, carrier from mine where id <> carrier union all select id, carrier from waiting
),
done as (
    update sereno.deliveries
    set state = 'skipped', reason = 'told by delivery ' || others.carrier, digest_of = others.carrier, job_id = null, changed_at = sereno.now()
    from others
    where deliveries.id = others.id
    returning deliveries.id
)
select coalesce(json_agg(json_build_array(carrier, payloads)), '[]')::text, (select count(*) from done)
from (select mine.carrier,
             (select json_agg(e.payload order by d.id)
              from sereno.deliveries d join sereno.events e on e.id = d.event_id
              where d.recipient_id = mine.recipient_id
                and (d.digest_of = mine.carrier or d.id in (select id from others where others.carrier = mine.carrier))) as payloads
      from mine where mine.id = mine.carrier) as each;

-- name: stranded
-- Somebody began to send these and was not heard of again: an earlier try of the same job, or a job that is gone. Locked, so
-- that one settles them; one that was taken after this transaction began is somebody's whose job it cannot see yet.
select coalesce(json_agg(json_build_array(id, unknowns)), '[]')::text
from (select id, unknowns from sereno.deliveries
      where state = 'sending' and channel = %(channel)s and account = %(account)s and changed_at < sereno.now()
        and (job_id = %(job)s or not exists (select from sereno.jobs where jobs.id = job_id and jobs.state = 'running'))
      order by id limit 1000
      for update skip locked) as lost;

-- name: record
-- What became of those that this job was sending. One that somebody else took meanwhile is left alone. An address that the
-- provider does not know is deactivated, and says why.
with said as materialized (
    select * from jsonb_to_recordset(%(outcomes)s::text::jsonb) as s(
        id bigint, state text, reason text, code text, message text, provider_id text, due_in double precision,
        receipt_in double precision, bad_address boolean, is_unknown boolean, refund boolean)
),
locked as materialized (
    select id from sereno.deliveries
    where id = any(array(select id from said))
      and (state in ('sending', 'unknown') and (job_id = %(job)s or %(stranded)s))
    order by id for update
),
moved as (
    update sereno.deliveries
    set state = said.state, reason = said.reason, error_code = coalesce(said.code, case when said.state in ('pending', 'unknown') then error_code end),
        error_message = coalesce(said.message, case when said.state in ('pending', 'unknown') then error_message end),
        provider_id = coalesce(said.provider_id, deliveries.provider_id),
        due_at = coalesce(sereno.now() + make_interval(secs => said.due_in), due_at),
        receipt_at = sereno.now() + make_interval(secs => said.receipt_in),
        sent_at = case when said.state in ('sent', 'delivered') then sereno.now() else sent_at end,
        attempts = attempts - case when said.refund then 1 else 0 end,
        unknowns = unknowns + case when said.is_unknown then 1 else 0 end,
        job_id = case when said.state = 'unknown' then job_id end, changed_at = sereno.now()
    from locked join said on said.id = locked.id
    where deliveries.id = locked.id
    returning deliveries.id, address_id, said.bad_address, said.code, said.message
),
addresses_ended as (
    update sereno.addresses
    set state = 'invalid', reason = coalesce(moved.code, 'refused') || coalesce(': ' || moved.message, ''), changed_at = sereno.now()
    from moved
    where moved.bad_address and addresses.id = moved.address_id and addresses.state = 'active'
    returning addresses.id
)
select coalesce((select json_agg(id) from moved), '[]')::text, (select count(*) from addresses_ended);

-- name: put_into_inbox
-- Told inside the application: the row and the state of its delivery, together.
with said as materialized (
    select * from jsonb_to_recordset(%(messages)s::text::jsonb) as s(id bigint, recipient bigint, event text, title text, body text, data jsonb)
),
locked as materialized (
    select id from sereno.deliveries
    where id = any(array(select id from said)) and state = 'sending' and job_id = %(job)s order by id for update
),
put as (
    insert into sereno.inbox (recipient_id, delivery_id, event, title, body, data)
    select recipient, said.id, event, title, body, data from said join locked on locked.id = said.id
    on conflict do nothing
),
moved as (
    update sereno.deliveries
    set state = 'delivered', reason = null, sent_at = sereno.now(), job_id = null, changed_at = sereno.now()
    where id = any(array(select id from locked))
    returning id
)
select count(*) from moved;

-- name: pause_channel
-- Nothing leaves by it until somebody has mended it; nobody's tries are used up meanwhile.
insert into sereno.channel_pauses (channel, account, reason) values (%(channel)s, %(account)s, %(reason)s)
on conflict do nothing
returning channel;

-- name: resume_channel
-- It works again.
delete from sereno.channel_pauses where channel = %(channel)s and (%(account)s::text is null or account = %(account)s)
returning account;

-- name: account
-- The credentials of a tenant for a channel.
select settings::text from sereno.accounts where channel = %(channel)s and tenant = %(tenant)s;

-- name: awaiting_receipts
-- Those whose provider can be asked now, the next look a while later, should nobody answer.
with due as materialized (
    select id from sereno.deliveries
    where receipt_at <= sereno.now() and channel = %(channel)s and account = %(account)s
    order by receipt_at limit %(batch)s
    for update skip locked
),
asked as (
    update sereno.deliveries
    set receipt_at = case when sent_at + make_interval(secs => %(longest)s) > sereno.now() + make_interval(secs => %(again)s)
                          then sereno.now() + make_interval(secs => %(again)s) end
    where id = any(array(select id from due))
    returning provider_id
)
select coalesce(json_agg(provider_id) filter (where provider_id is not null), '[]')::text, count(*) from asked;

-- name: apply_receipts
-- What a provider says of them, only ever forward, each once. Answers what it made of them, and how many are to be sent again.
with said as materialized (
    select distinct on (provider_id) *
    from jsonb_to_recordset(%(receipts)s::text::jsonb) as s(
        provider_id text, outcome text, code text, message text, receipt_id text, due_in double precision)
    order by provider_id, array_position(array['retry', 'delivered', 'failed', 'bounced', 'invalid', 'read'], outcome) desc
),
new as materialized (
    insert into sereno.receipts (channel, receipt_id, delivery_id, outcome, code)
    select %(channel)s, receipt_id,
           (select id from sereno.deliveries d where d.channel = %(channel)s and d.provider_id = said.provider_id limit 1),
           outcome, code
    from said where receipt_id is not null
    on conflict do nothing
    returning receipt_id
),
locked as materialized (
    select d.id, d.address_id, said.*
    from said join sereno.deliveries d on d.channel = %(channel)s and d.provider_id = said.provider_id
    where (said.receipt_id is null or said.receipt_id in (select receipt_id from new))
      and case d.state when 'sent' then true when 'unknown' then true
                       when 'delivered' then said.outcome in ('read', 'bounced') else false end
    order by d.id for update of d
),
moved as (
    update sereno.deliveries
    set state = case locked.outcome when 'retry' then 'pending' else locked.outcome end,
        reason = null, error_code = nullif(locked.code, ''), error_message = nullif(locked.message, ''),
        due_at = coalesce(sereno.now() + make_interval(secs => locked.due_in), due_at),
        receipt_at = null, changed_at = sereno.now()
    from locked
    where deliveries.id = locked.id
    returning deliveries.id, deliveries.state, deliveries.account, locked.address_id, locked.outcome, locked.code, locked.message
),
addresses_ended as (
    update sereno.addresses
    set state = 'invalid', reason = coalesce(nullif(moved.code, ''), 'refused') || coalesce(': ' || nullif(moved.message, ''), ''),
        changed_at = sereno.now()
    from moved
    where moved.outcome = 'invalid' and addresses.id = moved.address_id and addresses.state = 'active'
    returning addresses.id
)
select (select count(*) from moved), (select count(*) from addresses_ended),
       coalesce((select json_agg(distinct account) from moved where state = 'pending'), '[]')::text;

-- name: requeue
-- Back to work, by hand: what ended without having arrived, or what nobody knows of.
with found as materialized (
    select id from sereno.deliveries
    where id = any(%(ids)s) and state in ('skipped', 'failed', 'invalid', 'expired', 'dead', 'unknown', 'bounced')
    order by id for update
),
moved as (
    update sereno.deliveries
    set state = 'pending', reason = 'requeued', due_at = sereno.now(), attempts = 0, job_id = null, receipt_at = null,
        provider_id = null, expires_at = null, changed_at = sereno.now()
    where id = any(array(select id from found))
    returning id, channel, account
)
select coalesce(json_agg(json_build_array(id, channel, account)), '[]')::text from moved;
