-- Subscriptions of recipients to topics.
-- Lock order in every transaction: the recipients by id, then subscriptions by topic and recipient.

-- name: subscribe
-- Subscribes the recipients, or none of them if one does not exist. Returns how many subscriptions are new, and the keys
-- of recipients that do not exist.
with who as materialized (
    -- Locked in order first; the foreign key would lock them in any order.
    select id, key from sereno.recipients
    where tenant = %(tenant)s and key = any(%(recipients)s::text[]) order by id for key share
),
missing as materialized (
    select key from unnest(%(recipients)s::text[]) as key where key not in (select key from who)
),
made as (
    insert into sereno.subscriptions (tenant, topic, recipient_id)
    select %(tenant)s, %(topic)s, id from who where not exists (select from missing) order by id
    on conflict on constraint subscriptions_once do nothing
    returning 1
)
select (select count(*) from made), array(select key from missing order by key);

-- name: unsubscribe
-- Ends the subscriptions of the recipients to a topic. Returns how many there were.
with locked as materialized (
    select recipient_id from sereno.subscriptions
    where tenant = %(tenant)s and topic = %(topic)s
      and recipient_id = any(array(select id from sereno.recipients
                                   where tenant = %(tenant)s and key = any(%(recipients)s::text[])))
    order by recipient_id for update
),
ended as (
    delete from sereno.subscriptions
    where tenant = %(tenant)s and topic = %(topic)s and recipient_id = any(array(select recipient_id from locked))
    returning 1
)
select count(*) from ended;
