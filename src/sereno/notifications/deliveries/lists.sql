-- Lists of deliveries.

-- name: list
-- Newest first. Only the branch of `along` is read: by ids, event or recipient with their own index, by subject through
-- its newest events, else the newest. Of the newest, failed ones are found through their own table, however old they
-- are. Each branch is ordered, so that a page without other conditions reads no more rows than it shows.
with who as materialized (
    select id from sereno.recipients where tenant = coalesce(%(tenant)s::text, '') and key = %(recipient)s
),
page as materialized (
    select * from (
        (select * from (
             select * from sereno.deliveries
             where %(along)s::text = 'newest' and not coalesce(%(states)s::text[] <@ sereno.failed_states(), false)
               and id < coalesce(%(before)s::bigint, 9223372036854775807)
             order by id desc limit %(window)s) as newest
         where %(states)s::text[] is null or state <> all(sereno.failed_states())
         order by id desc)
        union all
        -- Failed ones: by tenant, by channel, or all, with the index of each; then one by one, by key: a join would be planned as
        -- a scan of all deliveries.
        (select d.*
         from (select found.delivery_id
               from unnest(%(states)s::text[]) as wanted(state)
               cross join lateral (
                   (select delivery_id from sereno.failed_deliveries
                    where %(tenant)s::text is null and %(channel)s::text is null and failed_deliveries.state = wanted.state
                      and delivery_id < coalesce(%(before)s::bigint, 9223372036854775807)
                    order by delivery_id desc limit %(part)s)
                   union all
                   (select delivery_id from sereno.failed_deliveries
                    where %(tenant)s::text is null and channel = %(channel)s and failed_deliveries.state = wanted.state
                      and delivery_id < coalesce(%(before)s::bigint, 9223372036854775807)
                    order by delivery_id desc limit %(part)s)
                   union all
                   (select delivery_id from sereno.failed_deliveries
                    where tenant = %(tenant)s and tenant <> '' and failed_deliveries.state = wanted.state
                      and (%(channel)s::text is null or channel = %(channel)s)
                      and delivery_id < coalesce(%(before)s::bigint, 9223372036854775807)
                    order by delivery_id desc limit %(part)s)
               ) as found
               where %(along)s::text = 'newest' and wanted.state = any(sereno.failed_states())
               order by delivery_id desc limit %(part)s) as failed
         join lateral (select * from sereno.deliveries where id = failed.delivery_id limit 1) as d on d.id = failed.delivery_id
         order by d.id desc)
        union all
        (select * from sereno.deliveries
         where %(along)s::text = 'id' and id = any(%(ids)s::bigint[]) and id < coalesce(%(before)s::bigint, 9223372036854775807)
           and (%(event)s::bigint is null or event_id = %(event)s)
           and (%(recipient)s::text is null or recipient_id = (select id from who))
         order by id desc)
        union all
        (select * from sereno.deliveries
         where %(along)s::text = 'event' and event_id = %(event)s and id < coalesce(%(before)s::bigint, 9223372036854775807)
           and (%(recipient)s::text is null or recipient_id = (select id from who))
           and (%(states)s::text[] is null or state = any(%(states)s)) and (%(channel)s::text is null or channel = %(channel)s)
         limit %(window)s)
        union all
        (select d.*
         from (select id from sereno.events
               where %(along)s::text = 'subject' and subject = %(subject)s::text
                 and (%(tenant)s::text is null or tenant = %(tenant)s) and (%(type)s::text is null or type = %(type)s)
               order by id desc limit %(events)s) as newest
         cross join lateral (
             select * from sereno.deliveries
             where event_id = newest.id and id < coalesce(%(before)s::bigint, 9223372036854775807)
               and (%(recipient)s::text is null or recipient_id = (select id from who))
               and (%(states)s::text[] is null or state = any(%(states)s)) and (%(channel)s::text is null or channel = %(channel)s)
             limit %(window)s) as d
         limit %(window)s)
        union all
        (select * from sereno.deliveries
         where %(along)s::text = 'recipient' and recipient_id = (select id from who)
           and id < coalesce(%(before)s::bigint, 9223372036854775807)
         order by id desc limit %(window)s)
    ) as every
    where (%(states)s::text[] is null or state = any(%(states)s)) and (%(channel)s::text is null or channel = %(channel)s)
      and (%(tenant)s::text is null or tenant = %(tenant)s)
      and (%(since)s::timestamptz is null or created_at >= %(since)s)
      -- One by one, by key: EXISTS may be planned as a scan of all events.
      and (%(type)s::text is null or (select of_it.type from sereno.events of_it where of_it.id = every.event_id) = %(type)s)
      and (%(subject)s::text is null
           or (select of_it.subject from sereno.events of_it where of_it.id = every.event_id) = %(subject)s)
-- use: notifications.delivery_terms
    order by id desc limit %(limit)s
)
select row_to_json(line)::text
from (select page.id, page.state, e.type as event, page.event_id, r.key as recipient, page.channel,
             nullif(page.tenant, '') as tenant, page.attempts, page.due_at, page.sent_at, page.created_at, page.changed_at,
             page.reason, page.error_code, page.error_message
      from page
      left join sereno.events e on e.id = page.event_id
      left join sereno.recipients r on r.id = page.recipient_id) as line
order by id desc;
