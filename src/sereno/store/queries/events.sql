-- Events: written with what made them true, and matched with those who want to hear of them.

-- name: notify
-- Once for (type, tenant, subject, key): the second one gets the number of the first, and nothing is made.
with made as (
    insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, critical, opt_in, due_at,
                               expires_at, note)
    values (%(type)s, %(tenant)s, %(subject)s, %(key)s, %(category)s, %(payload)s::text::jsonb, %(channels)s, %(audience)s,
            %(critical)s, %(opt_in)s, coalesce(%(due_at)s::timestamptz, sereno.now()),
            coalesce(%(due_at)s::timestamptz, sereno.now()) + make_interval(secs => %(ttl)s::double precision), %(note)s)
    on conflict on constraint events_once do nothing
    returning id
)
select id, true from made
union all
select id, false from sereno.events
where type = %(type)s and tenant = %(tenant)s and subject is not distinct from %(subject)s
  and key is not distinct from %(key)s and not exists (select from made);

-- name: name_recipients
-- Those who are named and not known yet: a decision about them needs somebody to be about.
insert into sereno.recipients (tenant, key)
select tenant, unnest(audience) from sereno.events where id = %(event)s
on conflict do nothing;

-- name: fan_out
-- Deliveries for the next recipients of an event, all at once. A broadcast leaves out those who do not want it; somebody
-- who was named gets a row that says why not. The row of the event is locked: two who walk would count the same people.
with event as materialized (
    select * from sereno.events where id = %(event)s and matched_at is null for update
),
page as materialized (
    select recipient.* from event cross join lateral (
        select id, zone from sereno.recipients
        where recipients.tenant = event.tenant and recipients.id > event.walked
          and (event.audience is null or recipients.key = any(event.audience))
        order by recipients.id limit %(size)s
    ) as recipient
),
channel as materialized (
    select name, exists (select from sereno.accounts where accounts.channel = name and accounts.tenant = event.tenant) as is_own
    from event, unnest(event.channels) as name
),
common as materialized (
    select name, choice.wanted, choice.condition, choice.quiet
    from event, channel, sereno.choice(null, event.tenant, event.category, event.type, channel.name) as choice
),
own as materialized (
    select p.recipient_id, channel.name,
           (array_agg(p.wanted order by weight desc) filter (where p.wanted is not null))[1] as wanted,
           (array_agg(p.condition order by weight desc) filter (where p.condition is not null))[1] as condition,
           (array_agg(p.quiet order by weight desc) filter (where p.quiet is not null))[1] as quiet
    from event cross join channel
    join sereno.preferences p
      on p.recipient_id = any(array(select id from page))
     and (p.category is null or p.category = event.category) and (p.event is null or p.event = event.type)
     and (p.channel is null or p.channel = channel.name)
    group by p.recipient_id, channel.name
),
judged as materialized (
    select page.id, page.zone, channel.name, channel.is_own, coalesce(own.quiet, common.quiet) as quiet,
           case when event.critical then null
                when not coalesce(own.wanted, common.wanted, not event.opt_in) then 'preference off'
                when not coalesce(jsonb_path_match(event.payload, coalesce(own.condition, common.condition), '{}', true),
                                  coalesce(own.condition, common.condition) is null) then 'condition'
           end as refused
    from event cross join page cross join channel
    join common on common.name = channel.name
    left join own on own.recipient_id = page.id and own.name = channel.name
),
made as (
    insert into sereno.deliveries (event_id, recipient_id, address_id, channel, account, tenant, state, reason, due_at, expires_at)
    select event.id, judged.id, address.id, judged.name, case when judged.is_own then event.tenant else '' end, event.tenant,
           case when why is null then 'pending' else 'skipped' end, why,
           greatest(event.due_at, case when judged.quiet is not null and why is null and not event.critical
                                       then sereno.quiet_until(judged.quiet, judged.zone, greatest(event.due_at, sereno.now())) end),
           event.expires_at
    from event cross join judged
    left join sereno.addresses as address
      on judged.refused is null and address.recipient_id = judged.id and address.channel = judged.name and address.state = 'active'
    cross join lateral (
        select coalesce(judged.refused, case when address.id is null and judged.name <> 'in_app' then 'no active address' end)
    ) as w(why)
    where judged.refused is null or event.audience is not null
    on conflict do nothing
    returning channel, account, state, due_at
),
moved as (
    update sereno.events
    set walked = coalesce((select max(id) from page), walked),
        matched_at = case when (select count(*) from page) < %(size)s then sereno.now() end
    where id = (select id from event)
    returning matched_at
)
select coalesce((select json_agg(json_build_array(channel, account, count, due_in))
                 from (select channel, account, ceil(greatest(0, extract(epoch from due_at - sereno.now())) / 60) * 60 as due_in,
                              count(*) as count
                       from made where state = 'pending' group by 1, 2, 3) as waiting), '[]')::text,
       (select count(*) from made), (select matched_at is null from moved);
