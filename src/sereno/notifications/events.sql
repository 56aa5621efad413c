-- Events: stored in the transaction that causes them, and matched with the recipients who want them.

-- name: notify
-- Once per (type, tenant, subject, key): a duplicate returns the id of the first event and creates nothing.
with made as (
    insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, topic, critical, opt_in, due_at,
                               expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, trace,
                               rate, variants)
    values (%(type)s, %(tenant)s, %(subject)s, %(key)s, %(category)s, %(payload)s::text::jsonb, %(channels)s, %(audience)s,
            %(topic)s, %(critical)s, %(opt_in)s, coalesce(%(due_at)s::timestamptz, sereno.now()),
            coalesce(%(due_at)s::timestamptz, sereno.now()) + make_interval(secs => %(ttl)s::double precision), %(note)s,
            %(steps)s::text::jsonb, %(throttle_most)s::integer, %(throttle_seconds)s::double precision, %(digest)s,
            %(digest_seconds)s::double precision, %(trace)s, %(rate)s::double precision, %(variants)s::text::jsonb)
    on conflict on constraint events_once do nothing
    returning id
)
select id, true from made
union all
select id, false from sereno.events
where type = %(type)s and tenant = %(tenant)s and subject is not distinct from %(subject)s
  and key is not distinct from %(key)s and not exists (select from made);

-- name: name_recipients
-- Creates the named recipients that do not exist yet, so that a decision about them can be stored. Ordered by name: two
-- events that name the same recipients would deadlock otherwise.
insert into sereno.recipients (tenant, key)
select tenant, name from sereno.events cross join unnest(audience) as name where id = %(event)s order by name
on conflict do nothing;

-- name: begin_fan_out
-- Events of a throttled type are fanned out one at a time: two at once would each miss the deliveries of the other. A
-- separate statement, so that the next one sees what was committed while this one waited. The settings hold for this
-- transaction: a plan that was made while there were few deliveries must not read all of them later. Returns the rate.
select rate, set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'off', true),
       case when throttle_most is not null
            then pg_advisory_xact_lock(hashtext('sereno throttle ' || tenant), hashtext(type))::text end
from sereno.events where id = %(event)s;

-- name: fan_out
-- Creates the deliveries for the next recipients of an event. A broadcast, or an event for a topic, creates none for
-- recipients who do not want it; a named recipient gets a skipped row with the reason. The event row is locked: two jobs would process the same
-- recipients. Columns of the event are read as scalar subqueries, once per statement: a join would read them once per
-- recipient.
with clock as materialized (select sereno.now() as now),
event as materialized (
    select * from sereno.events where id = %(event)s and matched_at is null for update
),
page as materialized (
    select recipient.id from event cross join lateral (
        (select id from sereno.recipients
         where event.audience is null and event.topic is null and recipients.tenant = event.tenant and recipients.id > event.walked
         order by recipients.id limit %(size)s)
        union all
        (select id from sereno.recipients
         where recipients.tenant = event.tenant and recipients.key = any(event.audience) and recipients.id > event.walked
         order by recipients.id limit %(size)s)
        union all
        (select subscriptions.recipient_id from sereno.subscriptions
         where subscriptions.tenant = event.tenant and subscriptions.topic = event.topic
           and subscriptions.recipient_id > event.walked
         order by subscriptions.recipient_id limit %(size)s)
    ) as recipient
),
-- The channels of the event, with the preferences that hold for recipients who have none of their own.
channel as materialized (
    select name, choice.wanted, choice.condition, choice.quiet,
           case when exists (select from sereno.accounts where accounts.channel = name and accounts.tenant = event.tenant)
                then event.tenant else '' end as account,
           -- Null for an event without a digest, which reads nothing of this. `longest`: half of the time after which a message
           -- expires or escalates; a recipient cannot choose more, except what the event itself has.
           case when event.digest is not null and not event.critical then (
               select p.digest_seconds from sereno.preferences p
               where p.recipient_id is null and p.tenant = event.tenant and (p.category is null or p.category = event.category)
                 and (p.event is null or p.event = event.type) and (p.channel is null or p.channel = name) and p.digest_seconds is not null
               order by weight desc limit 1) end as digest_seconds,
           case when event.digest is not null then greatest(event.digest_seconds, coalesce(least(
               extract(epoch from event.expires_at - event.due_at),
               (select min((step ->> 'after')::double precision) from jsonb_array_elements(event.steps) as step)) / 2, 'infinity')) end as longest
    from event, unnest(event.channels) as name, sereno.choice(null, event.tenant, event.category, event.type, name) as choice
),
own as (
    select p.recipient_id, channel.name, sereno.first(p.wanted order by weight desc) as wanted,
           sereno.first(p.condition order by weight desc) as condition, sereno.first(p.quiet order by weight desc) as quiet
    from sereno.preferences p join channel on p.channel is null or p.channel = channel.name
    where p.recipient_id = any(array(select id from page))
      and (p.category is null or p.category = (select category from event)) and (p.event is null or p.event = (select type from event))
    group by p.recipient_id, channel.name
),
-- The message that asks for the confirmation of an address goes to that address alone.
reach as (
    select id, recipient_id, channel from sereno.addresses
    where recipient_id = any(array(select id from page))
      and case when (select type from event) = 'sereno.confirm_address'
               then state = 'unverified' and id = (select (payload ->> 'address')::bigint from event)
               else state = 'active' end
),
judged as (
    select page.id, channel.name, channel.account, coalesce(own.quiet, channel.quiet) as quiet,
           -- How long the message is collected; 0 sends it at once, by itself. Read here, and not in `own`: other events do not pay for it.
           case when (select digest is null from event) then null
                when (select critical from event) then (select digest_seconds from event)
                else least(longest, coalesce(
                    (select p.digest_seconds from sereno.preferences p
                     where p.recipient_id = page.id and (p.category is null or p.category = (select category from event))
                       and (p.event is null or p.event = (select type from event)) and (p.channel is null or p.channel = channel.name)
                       and p.digest_seconds is not null
                     order by weight desc limit 1),
                    channel.digest_seconds, (select digest_seconds from event))) end as collected,
           case when (select critical from event) then null
                when not coalesce(own.wanted, channel.wanted, (select not opt_in from event)) then 'preference off'
                when not coalesce(jsonb_path_match((select payload from event), coalesce(own.condition, channel.condition), '{}', true),
                                  own.condition is null and channel.condition is null) then 'condition'
                when (select throttle_most is not null from event) and (select throttle_most from event) <= (
                    select count(distinct earlier.event_id) from sereno.deliveries earlier
                    where earlier.recipient_id = page.id and earlier.channel = channel.name and earlier.state <> 'skipped'
                      -- One by one, by key: a join would read all events, once per recipient.
                      and (select other.type from sereno.events other where other.id = earlier.event_id) = (select type from event)
                      and earlier.event_id <> %(event)s
                      and earlier.created_at > (select now from clock) - make_interval(secs => (select throttle_seconds from event))) then 'throttled'
           end as refused
    from page cross join channel
    left join own on own.recipient_id = page.id and own.name = channel.name
    offset 0
),
decided as (
    select judged.id as recipient_id, address.id as address_id, judged.name, judged.account, judged.quiet, judged.collected,
           coalesce(judged.refused, case when address.id is null and judged.name <> 'in_app' then 'no active address' end) as why
    from judged
    left join reach as address
      on judged.refused is null and address.recipient_id = judged.id and address.channel = judged.name
    where judged.refused is null or judged.refused = 'throttled' or (select audience is not null from event)
),
-- Without ON CONFLICT, which would take a third of the statement: under the lock of the event, no delivery of a
-- recipient behind `walked` can be written at the same time. Should there be earlier ones, each is looked for.
made as (
    insert into sereno.deliveries (event_id, recipient_id, address_id, channel, account, tenant, state, reason, due_at, expires_at,
                                   digest, created_at, changed_at)
    select %(event)s, recipient_id, address_id, name, account, (select tenant from event),
           case when why is null then 'pending' else 'skipped' end, why,
           greatest((select due_at from event),
                    -- A window that is open ends as it was to end, or sooner: this message takes along what is collected.
                    case when why is null and collected > 0 then least(
                        (select d.due_at from sereno.deliveries d
                         where d.recipient_id = decided.recipient_id and d.channel = name and d.digest = (select digest from event)
                           and d.state = 'pending' and d.due_at > (select now from clock)
                         order by d.id desc limit 1),
                        (select now from clock) + make_interval(secs => collected)) end,
                    case when quiet is not null and why is null and not (select critical from event)
                         then sereno.quiet_until(quiet, (select zone from sereno.recipients r where r.id = recipient_id),
                                                 (select greatest(due_at, now) from clock, event)) end),
           (select expires_at from event), case when collected > 0 then (select digest from event) end, (select now from clock),
           (select now from clock)
    from decided
    where not (select exists (select from sereno.deliveries d where d.event_id = event.id and d.recipient_id > event.walked) from event)
       or not exists (select from sereno.deliveries d
                      where d.event_id = %(event)s and d.recipient_id = decided.recipient_id and d.channel = name
                        and d.address_id is not distinct from decided.address_id)
    returning id, channel, account, reason, due_at
),
created as materialized (
    select channel, account, reason, due_at, count(*)::integer as count, array_agg(id) as ids,
           coalesce((%(sizes)s::text::jsonb ->> channel)::integer, 100) as size
    from made group by channel, account, reason, due_at
),
batched as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, gathers, deliveries)
    select 'send', channel, account, %(queue)s, due_at, (select digest is not null from event), ids[part * size + 1 : (part + 1) * size]
    from created cross join lateral generate_series(0, (count - 1) / size) as part
    where reason is null
    returning id
),
moved as (
    update sereno.events
    set walked = coalesce((select max(id) from page), walked),
        matched_at = case when (select count(*) from page) < %(size)s then (select now from clock) end
    where id = (select id from event)
    returning matched_at
)
select coalesce((select json_agg(json_build_array(channel, account, count, due_in) order by channel, account, due_in)
                 from (select channel, account, ceil(seconds / pace) * pace as due_in, sum(count) as count
                       from created cross join lateral (select greatest(0, extract(epoch from due_at - (select now from clock)))) as wait(seconds)
                       cross join lateral (select case when seconds <= 60 then 1 else 60 end) as tick(pace)
                       where reason is null group by 1, 2, 3) as waiting), '[]')::text,
       (select coalesce(sum(count), 0) from created), (select matched_at is null from moved), (select type from event), (select tenant from event),
       coalesce((select json_agg(json_build_array(channel, reason, count))
                 from (select channel, reason, sum(count) as count from created where reason is not null group by channel, reason) as against),
                '[]')::text,
       case when (select rate is not null from event) then (select array_agg(id) from batched) end;

-- name: steps
-- The escalation steps of an event.
select steps::text from sereno.events where id = %(event)s and steps is not null and cancelled_at is null;

-- name: escalate
-- Creates deliveries on the next channel for recipients whom the first did not reach in time, one page of recipients
-- per call. A recipient is ripe when all deliveries have ended or were sent long enough ago. Returns how many
-- recipients still wait, the last recipient of the page, and the new deliveries.
with event as materialized (select * from sereno.events where id = %(event)s),
-- A delivery that was collected into a digest has the state of the delivery that carried it.
tried as materialized (
    select d.recipient_id,
           bool_or(outcome.state = any(%(reached)s)) as is_reached,
           bool_and(case when outcome.state in ('pending', 'sending') then d.created_at + make_interval(secs => %(after)s) <= sereno.now()
                         when outcome.state in ('sent', 'delivered') then outcome.sent_at + make_interval(secs => %(after)s) <= sereno.now()
                         else true end) as is_ripe,
           bool_or(outcome.state not in ('skipped', 'expired') or outcome.reason in ('no active address')
                   or starts_with(outcome.reason, 'address ')) as is_meant
    from sereno.deliveries d
    left join sereno.deliveries carrier on carrier.id = d.digest_of and d.state = 'skipped'
    cross join lateral (select coalesce(carrier.state, d.state) as state, coalesce(carrier.sent_at, d.sent_at) as sent_at,
                               coalesce(carrier.reason, d.reason) as reason) as outcome
    where d.event_id = %(event)s and d.channel = %(first)s and d.recipient_id > %(last_recipient)s
    group by d.recipient_id
    order by d.recipient_id limit %(size)s
),
ripe as materialized (
    select recipient_id from tried
    where is_meant and is_ripe and not is_reached
      and not exists (select from sereno.deliveries done
                      where done.event_id = %(event)s and done.recipient_id = tried.recipient_id and done.channel = %(second)s)
),
made as (
    insert into sereno.deliveries (event_id, recipient_id, address_id, channel, account, tenant, state, reason, due_at, expires_at)
    select event.id, ripe.recipient_id, address.id, %(second)s,
           case when exists (select from sereno.accounts where accounts.channel = %(second)s and accounts.tenant = event.tenant)
                then event.tenant else '' end,
           event.tenant, case when why is null then 'pending' else 'skipped' end, why,
           greatest(event.due_at, sereno.now()), event.expires_at
    from event cross join ripe
    left join sereno.addresses as address
      on address.recipient_id = ripe.recipient_id and address.channel = %(second)s and address.state = 'active'
    cross join lateral (
        select case when address.id is null and %(second)s <> 'in_app' then 'no active address' end) as w(why)
    on conflict do nothing
    returning id, account, state, reason, due_at
),
batched as (
    insert into sereno.batches (purpose, channel, account, queue, due_at, deliveries)
    select 'send', %(second)s, account, %(queue)s, due_at, array_agg(id order by id)
    from (select id, account, due_at, (row_number() over (partition by account, due_at order by id) - 1) / 100 as part
          from made where state = 'pending') as waiting
    group by account, due_at, part
)
select (select count(*) from tried where is_meant and not is_ripe and not is_reached),
       (select count(*) from ripe),
       (select max(recipient_id) from tried having count(*) = %(size)s),
       coalesce((select json_agg(json_build_array(account, count) order by account)
                 from (select account, count(*) as count from made where state = 'pending' group by account) as each), '[]')::text,
       coalesce((select json_agg(json_build_array(%(second)s::text, event.type, event.tenant, each.state, each.reason, each.count))
                 from event cross join (
                     select state, reason, count(*) as count from made group by state, reason) as each), '[]')::text;

-- name: status
-- The status of an event: when it is due, whether its fan-out is complete, and its deliveries by state.
select id, due_at, due_at <= sereno.now(), matched_at, cancelled_at,
       coalesce((select json_object_agg(state, count) from (
           select state, count(*) as count from sereno.deliveries where event_id = events.id group by state) as each), '{}')::text
from sereno.events
where type = %(type)s and tenant = %(tenant)s and subject is not distinct from %(subject)s and key is not distinct from %(key)s;

-- name: without_job
-- Events of a queue that are due and have no fan-out job, because the job was deleted or lost.
select coalesce(json_agg(json_build_array(id, nullif(tenant, ''), trace)), '[]')::text
from (select id, tenant, trace from sereno.events
      where matched_at is null and due_at < sereno.now() - interval '1 minute'
        and coalesce((select definition ->> 'queue' from sereno.event_types where name = events.type), 'notifications') = %(queue)s
      order by due_at limit 1000) as late
where not exists (select from sereno.jobs where task = 'sereno.fan_out' and args ->> 'event' = late.id::text);
