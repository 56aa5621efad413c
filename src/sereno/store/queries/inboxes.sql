-- Many inboxes at once, for those who watch theirs.

-- name: standings
-- Of each that is named, in that order: the newest that is not put away, and how many are unread, counted up to a bound.
select newest.id, unread.count
from unnest(%(tenants)s::text[], %(keys)s::text[]) with ordinality as named(tenant, key, place)
left join sereno.recipients on recipients.tenant = named.tenant and recipients.key = named.key
left join lateral (
    select inbox.id from sereno.inbox
    where recipient_id = recipients.id and archived_at is null
    order by inbox.id desc limit 1
) as newest on true
left join lateral (
    select count(*) from (
        select from sereno.inbox
        where recipient_id = recipients.id and read_at is null and archived_at is null
        limit %(most)s) as page
) as unread on true
order by place;
