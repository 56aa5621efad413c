-- Messages and states of inboxes.

-- name: inbox_states
-- For each named recipient, in order: the newest message that is not archived, and the unread count up to a bound. Each
-- is found by the index: the limit keeps the planner from scanning all recipients for a thousand of them.
select newest.id, unread.count
from unnest(%(tenants)s::text[], %(keys)s::text[]) with ordinality as named(tenant, key, place)
left join lateral (
    select recipients.id from sereno.recipients
    where recipients.tenant = named.tenant and recipients.key = named.key limit 1
) as owner on true
left join lateral (
    select inbox.id from sereno.inbox
    where recipient_id = owner.id and archived_at is null
    order by inbox.id desc limit 1
) as newest on true
left join lateral (
    select count(*) from (
        select from sereno.inbox
        where recipient_id = owner.id and read_at is null and archived_at is null
        limit %(most)s) as page
) as unread on true
order by place;

-- name: exists
-- Whether the recipient exists.
select exists (select from sereno.recipients where tenant = %(tenant)s and key = %(key)s);

-- name: inbox
-- Newest first, and whether there are more. With `bytes`, a page ends with the message that exceeds them.
-- `octet_length` of a text does not read it.
select coalesce(json_agg(json_build_object(
    'id', id, 'event', event, 'title', title, 'body', body, 'data', sereno.shown(data), 'created_at', created_at, 'seen_at', seen_at,
    'read_at', read_at, 'archived_at', archived_at) order by id desc) filter (where fits), '[]')::text, coalesce(bool_or(not fits), false)
from (select page.*, row_number() over along <= %(most)s
             and (%(bytes)s::bigint is null
                  or coalesce(sum(octet_length(title) + octet_length(body) + octet_length(data::text))
                              over (order by id desc rows between unbounded preceding and 1 preceding), 0) < %(bytes)s) as fits
      from (select inbox.* from sereno.inbox
            where recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
              and (%(before)s::bigint is null or id < %(before)s)
              and (%(archived)s and archived_at is not null or not %(archived)s and archived_at is null)
            order by id desc offset %(skip)s limit %(most)s + 1) as page
      window along as (order by id desc)) as sized;

-- name: unread
-- The number of unread messages, up to a bound.
select count(*) from (
    select from sereno.inbox
    where recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
      and read_at is null and archived_at is null
    limit 1000) as page;
