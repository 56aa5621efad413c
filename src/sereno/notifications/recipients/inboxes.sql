-- State of many inboxes in one query, for connected clients.

-- name: standings
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
