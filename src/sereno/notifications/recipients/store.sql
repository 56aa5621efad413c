-- Recipients, their addresses and preferences, and their inboxes.
-- Lock order in every transaction: the recipient, then addresses, preferences, subscriptions or inbox rows in order, then deliveries by id.

-- name: upsert
-- Creates the recipient or changes the given fields; null leaves a field unchanged.
insert into sereno.recipients as r (tenant, key, locale, zone, data)
values (%(tenant)s, %(key)s, %(locale)s, %(zone)s, %(data)s::text::jsonb)
on conflict on constraint recipients_key do update
set locale = coalesce(excluded.locale, r.locale), zone = coalesce(excluded.zone, r.zone),
    data = coalesce(excluded.data, r.data), changed_at = sereno.now()
returning id;

-- name: add_addresses
-- An invalid address that is given again becomes active: the application knows better. An unsubscribed one does not.
insert into sereno.addresses as a (recipient_id, channel, address, keys, state)
select %(recipient)s, channel, address, keys, coalesce(state, 'active')
from jsonb_to_recordset(%(addresses)s::text::jsonb) as s(channel text, address text, keys jsonb, state text)
order by channel, address
on conflict on constraint addresses_once do update
set keys = coalesce(excluded.keys, a.keys),
    state = case when a.state = 'unsubscribed' then a.state else excluded.state end,
    reason = case when a.state = 'unsubscribed' then a.reason end, changed_at = sereno.now()
returning id;

-- name: lock
-- Locks a recipient for a change that is decided from its rows. It conflicts with the key share lock of other changes.
select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s for update;

-- name: change_address
-- Changes the state of an address, with the reason, in all spellings in which it may be stored.
with locked as materialized (
    select id from sereno.addresses
    where recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
      and channel = %(channel)s and address = any(%(addresses)s::text[])
    order by id for update
)
update sereno.addresses set state = %(state)s, reason = %(reason)s, changed_at = sereno.now()
where id = any(array(select id from locked))
returning id;

-- name: unsubscribe_address
-- Unsubscribes the address of a link. Idempotent. Returns whether the address exists.
with mine as materialized (
    select id from sereno.addresses
    where id = %(address)s and channel = %(channel)s
      and recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
),
changed as (
    update sereno.addresses set state = 'unsubscribed', reason = %(reason)s, changed_at = sereno.now()
    where id = (select id from mine) and state <> 'unsubscribed'
)
select exists (select from mine);

-- name: unsubscribe_category
-- Turns off a category on a channel. If the recipient had turned on the event of the message by name, which would win
-- over the category, that is turned off too. Other aspects of those rows stay. Returns whether the recipient exists.
with who as materialized (
    -- Locked first; the foreign key would lock it last.
    select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s for key share
),
scope as materialized (
    select %(category)s::text as category, null::text as event
    union
    select category, event from sereno.preferences
    where recipient_id = (select id from who) and wanted and event = %(event)s::text
      and (category is null or category = %(category)s) and (channel is null or channel = %(channel)s)
),
changed as (
    insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted)
    select %(tenant)s, who.id, scope.category, scope.event, %(channel)s, false from who cross join scope
    order by scope.category, scope.event
    on conflict on constraint preferences_once do update set wanted = false, changed_at = sereno.now()
    where p.wanted is distinct from false
)
select exists (select from who);

-- name: delete
-- Deletes the recipient with addresses, preferences, subscriptions and inbox. Deliveries stay as history. The deleted rows are locked
-- in order first; the foreign keys would delete them in any order.
with who as materialized (
    select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s for update
),
reach as materialized (
    select id from sereno.addresses where recipient_id = (select id from who) order by id for update
),
wishes as materialized (
    select id from sereno.preferences where recipient_id = (select id from who) and (select count(*) from reach) >= 0
    order by id for update
),
topics as materialized (
    select topic from sereno.subscriptions where recipient_id = (select id from who) and (select count(*) from wishes) >= 0
    order by topic for update
),
messages as materialized (
    select id from sereno.inbox where recipient_id = (select id from who) and (select count(*) from topics) >= 0
    order by id for update
)
delete from sereno.recipients where id = (select id from who) and (select count(*) from messages) >= 0 returning id;

-- name: prefer
-- Changes the aspects in `changes` for exactly this recipient, category, event and channel; the others stay.
with who as materialized (
    select id from sereno.recipients where tenant = %(tenant)s and key = %(recipient)s for key share
)
insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted, filter, condition, quiet, digest_seconds)
select %(tenant)s, (select id from who), %(category)s, %(event)s, %(channel)s, %(wanted)s, %(filter)s::text::jsonb,
       %(condition)s::text::jsonpath, %(quiet)s::text::jsonb, %(digest)s::double precision
where %(recipient)s::text is null or exists (select from who)
on conflict on constraint preferences_once do update
set wanted = case when 'wanted' = any(%(changes)s::text[]) then excluded.wanted else p.wanted end,
    filter = case when 'condition' = any(%(changes)s) then excluded.filter else p.filter end,
    condition = case when 'condition' = any(%(changes)s) then excluded.condition else p.condition end,
    quiet = case when 'quiet' = any(%(changes)s) then excluded.quiet else p.quiet end,
    digest_seconds = case when 'digest' = any(%(changes)s) then excluded.digest_seconds else p.digest_seconds end,
    changed_at = sereno.now()
returning id;

-- name: forget_preference
-- Deletes a preference without any aspect.
delete from sereno.preferences
where id = %(id)s and wanted is null and filter is null and quiet is null and digest_seconds is null;

-- name: mark
-- Marks messages as seen, read or archived; the first time stays. A read message is also seen; its delivery is read.
with locked as materialized (
    select id, delivery_id from sereno.inbox
    where recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
      and (%(ids)s::bigint[] is null or id = any(%(ids)s)) and archived_at is null
      -- All messages: those already marked need no change.
      and (%(ids)s::bigint[] is not null
           or case %(what)s when 'seen' then seen_at is null when 'read' then read_at is null else true end)
    order by id for update
),
mine as (
    update sereno.inbox
    set seen_at = coalesce(seen_at, sereno.now()),
        read_at = case when %(what)s in ('read', 'archived') then coalesce(read_at, sereno.now()) else read_at end,
        archived_at = case when %(what)s = 'archived' then coalesce(archived_at, sereno.now()) else archived_at end
    where id = any(array(select id from locked))
    returning id
),
delivered as materialized (
    select id from sereno.deliveries
    where %(what)s in ('read', 'archived') and id = any(array(select delivery_id from locked)) and state = 'delivered'
    order by id for update
),
read as (
    update sereno.deliveries set state = 'read', changed_at = sereno.now()
    where id = any(array(select id from delivered)) and state = 'delivered'
)
select count(*) from mine;
