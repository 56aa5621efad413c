-- Many inboxes at once, for those who watch theirs.

-- name: standings
-- Of each that is named, in that order: the newest that is not put away, and how many are unread, counted up to a bound.
-- Each is looked up by the index: the limit keeps the planner from reading all recipients for a thousand of them.
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
-- Whether there is a recipient of this name.
select exists (select from sereno.recipients where tenant = %(tenant)s and key = %(key)s);
