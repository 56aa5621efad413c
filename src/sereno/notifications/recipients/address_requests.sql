-- Addresses that recipients add in the preference centre: requested, and confirmed by the link in a message.

-- name: recent_requests
-- Counts the requests of a recipient in the last hour: events, which the unique key finds. The recipient is locked.
select count(*) from sereno.events
where type = %(type)s and tenant = %(tenant)s and subject = %(key)s and created_at > sereno.now() - interval '1 hour';

-- name: forget_unconfirmed
-- Deletes requested addresses of a recipient that were not confirmed while their link worked.
with old as materialized (
    select id from sereno.addresses
    where recipient_id = %(recipient)s and state = 'unverified' and reason = %(reason)s
      and changed_at < sereno.now() - make_interval(secs => %(life)s)
    order by id for update
)
delete from sereno.addresses where id = any(array(select id from old));

-- name: request
-- Stores the address unless the recipient has it. Returns its id if it waits for a confirmation, and nothing for one that
-- is used, refused by its owner or unreachable, or that many recipients have requested in the last hour.
insert into sereno.addresses as a (recipient_id, channel, address, state, reason)
select %(recipient)s, %(channel)s, %(address)s, 'unverified', %(reason)s
where %(most)s > (select count(*) from sereno.addresses
                  where channel = %(channel)s and address = %(address)s and state = 'unverified' and reason = %(reason)s
                    and changed_at > sereno.now() - interval '1 hour')
on conflict on constraint addresses_once do update set changed_at = sereno.now() where a.state = 'unverified'
returning id;

-- name: confirm
-- Activates an address that waits for it. Returns its state before; nothing if it does not exist.
with mine as materialized (
    select id, state from sereno.addresses
    where recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(key)s)
      and channel = %(channel)s and address = %(address)s
    for update
),
changed as (
    update sereno.addresses set state = 'active', reason = null, changed_at = sereno.now()
    where id = (select id from mine where state = 'unverified')
)
select state from mine;
