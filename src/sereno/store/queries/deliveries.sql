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
-- the same kind that still wait: the time to gather began with the first. Answers for each carrier all payloads.
with mine as materialized (
    select id, recipient_id, address_id, digest, channel,
           min(id) over (partition by recipient_id, address_id, digest) as carrier
    from sereno.deliveries where id = any(%(ids)s) and state = 'sending' and job_id = %(job)s and digest is not null
),
waiting as materialized (
    select d.id, d.recipient_id, mine.carrier
    from mine join sereno.deliveries d
      on d.recipient_id = mine.recipient_id and d.digest = mine.digest and d.channel = mine.channel
     and d.address_id is not distinct from mine.address_id and d.state = 'pending'
    where mine.id = mine.carrier
    limit 500
    for update of d skip locked
),
others as materialized (
    select id, recipient_id, carrier from mine where id <> carrier union all select id, recipient_id, carrier from waiting
),
-- One that carried others itself, and was not sent: they come along.
inherited as (
    update sereno.deliveries set digest_of = others.carrier, reason = 'told by delivery ' || others.carrier
    from others
    where deliveries.recipient_id = others.recipient_id and deliveries.digest_of = others.id
    returning deliveries.id
),
done as (
    update sereno.deliveries
    set state = 'skipped', reason = 'told by delivery ' || others.carrier, digest_of = others.carrier, job_id = null, changed_at = sereno.now()
    from others
    where deliveries.id = others.id
    returning deliveries.id
)
select coalesce(json_agg(json_build_array(carrier, payloads)), '[]')::text, (select count(*) from done),
       (select count(*) from inherited)
from (select mine.carrier,
             (select json_agg(e.payload order by e.id)
              from sereno.deliveries d join sereno.events e on e.id = d.event_id
              where d.recipient_id = mine.recipient_id
                and (d.id = mine.carrier or d.digest_of = mine.carrier
                     or d.id in (select id from others where others.carrier = mine.carrier)
                     or d.digest_of in (select id from others where others.carrier = mine.carrier))) as payloads
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
        receipt_in double precision, bad_address boolean, is_unknown boolean, refund boolean, attempt integer)
),
locked as materialized (
    select d.id from said join sereno.deliveries d on d.id = said.id
    where d.state in ('sending', 'unknown') and (d.job_id = %(job)s or %(stranded)s)
      and (said.attempt is null or said.attempt = d.attempts)
    order by d.id for update of d
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
    select * from jsonb_to_recordset(%(messages)s::text::jsonb) as s(
        id bigint, attempt integer, recipient bigint, event text, title text, body text, data jsonb)
),
locked as materialized (
    select d.id from said join sereno.deliveries d on d.id = said.id
    where d.state = 'sending' and d.job_id = %(job)s and d.attempts = said.attempt
    order by d.id for update of d
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
        provider_id text, outcome text, code text, message text, receipt_id text)
    order by provider_id,
             array_position(array['down', 'retry', 'delivered', 'failed', 'bounced', 'invalid', 'read'], outcome) desc
),
new as materialized (
    insert into sereno.receipts (channel, receipt_id, delivery_id, outcome, code)
    select %(channel)s, receipt_id,
           known.id, outcome, code
    from said
    -- One that nobody waits for yet is not remembered: told again, it counts.
    cross join lateral (select id from sereno.deliveries d
                        where d.channel = %(channel)s and d.account = %(account)s and d.provider_id = said.provider_id
                        limit 1) as known
    where receipt_id is not null
    on conflict do nothing
    returning receipt_id
),
locked as materialized (
    select d.id, d.address_id, d.attempts, said.*
    from said
    join sereno.deliveries d on d.channel = %(channel)s and d.account = %(account)s and d.provider_id = said.provider_id
    where (said.receipt_id is null or said.receipt_id in (select receipt_id from new))
      and case d.state when 'sent' then true when 'unknown' then true
                       when 'delivered' then said.outcome in ('read', 'bounced') else false end
    order by d.id for update of d
),
moved as (
    update sereno.deliveries
    set state = case when locked.outcome = 'down' then 'pending'
                     when locked.outcome = 'retry' and locked.attempts > cardinality(%(delays)s::double precision[]) then 'dead'
                     when locked.outcome = 'retry' then 'pending' else locked.outcome end,
        reason = case when locked.outcome = 'down' then 'the channel is paused'
                      when locked.outcome = 'retry' and locked.attempts > cardinality(%(delays)s::double precision[])
                          then locked.attempts || ' tries, none of them arrived'
                      when locked.outcome = 'retry' then 'tried again' end,
        attempts = deliveries.attempts - case when locked.outcome = 'down' then 1 else 0 end,
        error_code = nullif(locked.code, ''), error_message = nullif(locked.message, ''),
        due_at = case when locked.outcome = 'retry' and locked.attempts <= cardinality(%(delays)s::double precision[])
                      then sereno.now() + make_interval(secs => (%(delays)s::double precision[])[greatest(1, locked.attempts)])
                      else due_at end,
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
       (select count(*) from moved where state = 'pending');

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

-- name: neglected
-- Channels and accounts with something that is long due and that nobody sends, as it seems: a job that was cancelled, deleted
-- or died took its turn along. From one to the next along the index.
with recursive place(channel, account) as (
    (select channel, account from sereno.deliveries where state = 'pending' order by channel, account limit 1)
    union all
    select next.channel, next.account
    from place cross join lateral (
        select d.channel, d.account from sereno.deliveries d
        where d.state = 'pending' and (d.channel, d.account) > (place.channel, place.account)
        order by d.channel, d.account limit 1) as next
)
select channel, account from place
where exists (select from sereno.deliveries d
              where d.state = 'pending' and d.channel = place.channel and d.account = place.account
                and d.due_at < sereno.now() - interval '1 minute')
  and not exists (select from sereno.channel_pauses p where p.channel = place.channel and p.account in ('', place.account))
union
select channel, account from sereno.deliveries where state = 'sending' and changed_at < sereno.now() - interval '5 minutes';

-- name: unasked
-- Channels and accounts whose receipts nobody asks for any more.
with recursive place(channel, account) as (
    (select channel, account from sereno.deliveries where receipt_at is not null order by channel, account limit 1)
    union all
    select next.channel, next.account
    from place cross join lateral (
        select d.channel, d.account from sereno.deliveries d
        where d.receipt_at is not null and (d.channel, d.account) > (place.channel, place.account)
        order by d.channel, d.account limit 1) as next
)
select channel, account from place
where exists (select from sereno.deliveries d
              where d.receipt_at < sereno.now() - interval '5 minutes' and d.channel = place.channel
                and d.account = place.account);

-- name: waiting_accounts
-- Accounts with something to send on a channel.
with recursive place(account) as (
    (select account from sereno.deliveries where state = 'pending' and channel = %(channel)s order by account limit 1)
    union all
    select next.account
    from place cross join lateral (
        select d.account from sereno.deliveries d
        where d.state = 'pending' and d.channel = %(channel)s and d.account > place.account
        order by d.account limit 1) as next
)
select account from place;
